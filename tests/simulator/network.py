"""The memory network: nodes by name, links by direction, connections that fail as TCP's do."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import errno
import random
from collections.abc import Callable, Iterable

from broker.environment import ProtocolFactory
from tests.simulator.link import Link, LinkDelay
from tests.simulator.loop import SimulatedLoop
from tests.simulator.process import NodeProcess, current_node, require_alive
from tests.simulator.stream import MemoryTransport, Stream

#: Linux gives up a connection attempt without an answer after about this long (tcp_syn_retries = 6).
CONNECT_TIMEOUT_S = 127.0

#: The kernel's receive window. Small, so that back-pressure happens in every run.
DEFAULT_WINDOW_BYTES = 64 * 1024

#: Ends one fault; called twice, or after `heal_all`, it does nothing.
Mend = Callable[[], None]

_OWN_NAMES = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
_FIRST_EPHEMERAL_PORT = 32768


class MemoryListener:
    """`broker.environment.Listener`."""

    def __init__(
        self,
        network: MemoryNetwork,
        address: tuple[str, int],
        factory: ProtocolFactory,
        node: NodeProcess,
        context: contextvars.Context,
    ) -> None:
        self.address = address
        self.factory = factory
        self.node = node
        self.context = context
        self._network = network

    @property
    def port(self) -> int:
        return self.address[1]

    def close(self) -> None:
        self._network.close_listener(self)

    def accept(self, transport: MemoryTransport) -> None:
        """As accept(2), which passes over a connection that was reset while it waited."""
        if not transport.is_lost:
            transport.start(self.factory())


class NodeNetwork:
    """`broker.environment.Network` as one node has it. Hosts are node names; localhost is the node itself."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> MemoryListener:
        """Raises OSError(EADDRINUSE). Every address of the node is listened on, whatever `host` says."""
        return self._network.listen(self._host, port, factory)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> MemoryTransport:
        """Raises ConnectionRefusedError, or TimeoutError after two minutes of silence."""
        target = self._host if host in _OWN_NAMES else host
        answer = self._network.dial(self._host, (target, port))
        try:
            transport = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().abort()
            raise
        transport.start(factory())
        return transport


class MemoryNetwork:
    """All nodes, links and connections.

    strict: compare written buffers with our copies when they leave, to find buffers that are reused early.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        *,
        delay: LinkDelay | None = None,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        strict: bool = True,
    ) -> None:
        self.strict = strict
        self._loop = loop
        self._rng = rng
        self._delay = delay or LinkDelay()
        self._window_bytes = window_bytes
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        #: Open ends by process, in order of creation. A dead process has none.
        self._ends: dict[NodeProcess, dict[MemoryTransport, None]] = {}
        self._next_port: dict[str, int] = {}
        #: Hosts without power. A dict for its order.
        self._dark: dict[str, None] = {}

    def of(self, host: str) -> NodeNetwork:
        return NodeNetwork(self, host)

    # -- faults ----------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The direction source -> target; its `delay` may be replaced."""
        link = self._links.get((source, target))
        if link is None:
            link = Link(self._loop, self._rng, source, target, copy.copy(self._delay))
            self._links[source, target] = link
        return link

    def hosts(self) -> list[str]:
        """Who ever sent or received anything, or was in a fault, in that order."""
        return list(dict.fromkeys(host for ends in self._links for host in ends))

    def cut(self, source: str, target: str) -> Mend:
        """One way: what is on its way or sent from now on is lost. Returns what ends this cut, and no other."""
        self._note(source, f"cut from {target}")
        link = self.link(source, target)
        key = link.cut()

        def mend() -> None:
            if link.end_cut(key):
                self._works_again(link)

        return mend

    def heal(self, source: str, target: str) -> None:
        """The direction works again, whoever cut it; connections that lost bytes on it are reset."""
        link = self.link(source, target)
        if link.end_cuts():
            self._works_again(link)

    def cut_all(self, directions: Iterable[tuple[str, str]]) -> Mend:
        """Cut all of these (source, target) at once. Returns what ends these cuts, and no others."""
        return _end_all([self.cut(source, target) for source, target in directions])

    def partition(self, one: Iterable[str], other: Iterable[str]) -> Mend:
        """Cut every link between the two sides, both ways."""
        other = list(other)
        return self.cut_all(way for a in one for b in other for way in ((a, b), (b, a)))

    def stall(self, source: str, target: str) -> Mend:
        """One way: late, not lost."""
        self._note(source, f"stalled to {target}")
        link = self.link(source, target)
        key = link.stall()
        return lambda: link.end_stall(key)

    def slow(self, source: str, target: str, delay: LinkDelay) -> Mend:
        """One way: everything takes this long."""
        self._note(source, f"slow to {target}")
        link = self.link(source, target)
        key = link.slow(delay)
        return lambda: link.end_slow(key)

    def corrupt(self, source: str, target: str, share: float) -> Mend:
        """One way: this share of the chunks of any connection arrives changed, not at all, twice, or with an older one
        behind it, and TCP does not notice."""
        self._note(source, f"corrupted to {target}")
        link = self.link(source, target)
        key = link.corrupt(share)
        return lambda: link.end_corruption(key)

    def refuse(self, source: str, target: str) -> Mend:
        """One way: dials from `source` to `target` are refused at once, also across a cut, as by a firewall that
        rejects them. Open connections stay. Returns what ends this refusal, and no other."""
        self._note(source, f"dials to {target} are refused")
        link = self.link(source, target)
        key = link.refuse()
        return lambda: link.end_refusal(key)

    def refuse_all(self, directions: Iterable[tuple[str, str]]) -> Mend:
        """Refuse dials in all of these (source, target). Returns what ends these refusals, and no others."""
        return _end_all([self.refuse(source, target) for source, target in directions])

    def heal_all(self) -> None:
        """Every link works, whatever was done to it. Connections whose bytes were corrupted are reset, like those that
        lost some: a node may wait for the rest of a frame whose size was changed, until it misses the echoes."""
        for link in list(self._links.values()):
            link.restore()
            self.heal(link.source, link.target)
        for end in self._all_ends():
            if end.outgoing.is_corrupted or end.incoming.is_corrupted:
                self._reset_both(end)

    def _works_again(self, link: Link) -> None:
        self._note(link.source, f"healed to {link.target}")
        for end in self._all_ends():
            # Also where the sender has closed: its kernel repeats the FIN until somebody answers.
            if any(stream.link is link and stream.is_broken for stream in (end.outgoing, end.incoming)):
                self._reset_both(end)

    def reset(self, one: str, other: str) -> None:
        """RST both ends of every connection between two nodes, as a middlebox does that forgot them."""
        self._note(one, f"reset with {other}")
        for end in self._all_ends():
            if end.outgoing.link.source == one and end.outgoing.link.target == other:
                self._reset_both(end)

    def power_off(self, host: str) -> None:
        """Before `loop.kill`: the machine goes dark, so its connections end in silence, not in FIN."""
        self._dark[host] = None

    def power_on(self, host: str) -> None:
        self._dark.pop(host, None)

    # -- for nodes, listeners and transports -----------------------------------------------------------------

    def listen(self, host: str, port: int, factory: ProtocolFactory) -> MemoryListener:
        node = self._caller()
        if port == 0:
            port = self._ephemeral_port(host)
        address = (host, port)
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        self._ends_of(node)
        listener = MemoryListener(self, address, factory, node, contextvars.copy_context())
        self._listeners[address] = listener
        return listener

    def close_listener(self, listener: MemoryListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def dial(self, host: str, target: tuple[str, int]) -> asyncio.Future[MemoryTransport]:
        """SYN out, the answer back, or a refusal at once. The future belongs to the calling node."""
        answer: asyncio.Future[MemoryTransport] = self._loop.create_future()
        client = (self._caller(), contextvars.copy_context(), (host, self._ephemeral_port(host)))
        timer = self._loop.call_later(CONNECT_TIMEOUT_S, _time_out, answer)
        answer.add_done_callback(lambda _: timer.cancel())
        link = self.link(host, target[0])
        if link.is_refusing:
            self._loop.call_soon(_refuse, answer, target, context=self._loop.world.new_context())
        else:
            link.carry(lambda: self._syn_arrived(client, target, answer), _nothing)
        return answer

    def forget(self, end: MemoryTransport) -> None:
        """The end is closed."""
        self._ends[end.node].pop(end, None)

    def reads_before_reset(self) -> bool:
        """What a kernel does with data that came before an RST and was not read: Linux still gives it out, BSD throws
        it away."""
        return self._rng.random() < 0.5

    def reset_sender(self, end: MemoryTransport) -> None:
        """Data came for a closed socket: a machine that runs answers RST."""
        if end.outgoing.link.source not in self._dark:
            # Not in the order of the stream: it says only that there is none any more.
            end.outgoing.link.carry(end.outgoing.receiver.reset, _nothing)

    # -- inside ----------------------------------------------------------------------------------------------

    def _syn_arrived(
        self,
        client: tuple[NodeProcess, contextvars.Context, tuple[str, int]],
        target: tuple[str, int],
        answer: asyncio.Future[MemoryTransport],
    ) -> None:
        node, context, address = client
        if not node.alive or target[0] in self._dark:
            return
        back = self.link(target[0], address[0])
        listener = self._listeners.get(target)
        if listener is None:
            back.carry(lambda: _refuse(answer, target), _nothing)
            return
        near = MemoryTransport(self, self._loop, node, context, address, target)
        far = MemoryTransport(self, self._loop, listener.node, listener.context, target, address)
        near.outgoing = far.incoming = Stream(self.link(address[0], target[0]), self._rng, self._window_bytes)
        far.outgoing = near.incoming = Stream(back, self._rng, self._window_bytes)
        for stream, sender, receiver in ((near.outgoing, near, far), (far.outgoing, far, near)):
            stream.sender, stream.receiver = sender, receiver
        self._ends_of(node)[near] = None
        self._ends_of(listener.node)[far] = None
        # The kernel finishes the handshake, whether or not the process runs.
        self._loop.call_soon(listener.accept, far, context=listener.context)
        back.carry(lambda: self._syn_answered(near, answer), _nothing)

    def _syn_answered(self, near: MemoryTransport, answer: asyncio.Future[MemoryTransport]) -> None:
        if not answer.done():
            answer.set_result(near)
        elif near.node.alive:
            # The caller gave up waiting.
            near.vanish(silently=False)
            self.forget(near)

    def _reset_both(self, end: MemoryTransport) -> None:
        for stream in (end.outgoing, end.incoming):
            receiver = stream.receiver
            stream.is_broken = True
            stream.link.carry(receiver.reset, _nothing)

    def _ends_of(self, node: NodeProcess) -> dict[MemoryTransport, None]:
        ends = self._ends.get(node)
        if ends is None:
            ends = self._ends[node] = {}
            node.at_exit.append(lambda: self._exited(node))
        return ends

    def _exited(self, node: NodeProcess) -> None:
        for address in [address for address, listener in self._listeners.items() if listener.node is node]:
            del self._listeners[address]
        for end in self._ends.pop(node):
            end.vanish(silently=end.outgoing.link.source in self._dark)

    def _all_ends(self) -> list[MemoryTransport]:
        return [end for ends in self._ends.values() for end in ends]

    def _caller(self) -> NodeProcess:
        node = current_node.get()
        require_alive(node)
        return node or self._loop.world

    def _ephemeral_port(self, host: str) -> int:
        port = self._next_port.get(host, _FIRST_EPHEMERAL_PORT)
        self._next_port[host] = port + 1
        return port

    def _note(self, host: str, text: str) -> None:
        self._loop.trace.note(self._loop.time(), host, text)


def _end_all(mends: list[Mend]) -> Mend:
    def mend() -> None:
        for each in mends:
            each()

    return mend


def _time_out(answer: asyncio.Future[MemoryTransport]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(errno.ETIMEDOUT, "no answer"))


def _refuse(answer: asyncio.Future[MemoryTransport], target: tuple[str, int]) -> None:
    if not answer.done():
        answer.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"{target[0]}:{target[1]} refuses"))


def _nothing() -> None:
    """A lost SYN, or a lost reset: silence."""
