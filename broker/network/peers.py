"""Links between nodes: one dialled connection per direction, a handshake, one send per loop iteration.

Node X sends everything for Y, answers included, on the connection that X dialled. The connection that Y dialled carries
only Y's messages. So each direction fails by itself, as the liveness rules expect (replication.md section 5), and the
nodes need not agree on who dials.

Handshake (replication.md section 10): Hello names the cluster id (None: this node is empty), node id, directory id and
boot id. HelloReply names those of the other side, or gives the reason of a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast
from uuid import UUID

import structlog

from broker.environment import Network
from broker.network import os_errors
from broker.scheduling.turn import Turn
from protocol.errors import ErrorCode, ProtocolError, known_error
from protocol.framing import FrameReader
from protocol.peer import Hello, HelloReply, PeerMessage, decode_peer, encode_peer
from storage.disk import Buffer

log = structlog.get_logger()

#: Version 3: requests to the controller are declared messages. In version 2 they were JSON in a Forward message.
PEER_PROTOCOL_VERSION = 3
#: A frame between nodes carries at most one range of batches, and a batch is at most a client frame (100 MiB).
MAX_PEER_FRAME_BYTES = (100 << 20) + (1 << 20)
#: Unsent bytes at which a connection is closed, because the other side does not read. Raft sends again what was lost.
MAX_UNSENT_BYTES = 256 << 20
CONNECT_TIMEOUT_S = 1.0
HANDSHAKE_TIMEOUT_S = 2.0
RECONNECT_PAUSE_S = 0.1


class PeerIdentity(NamedTuple):
    """The node at the other end, as it introduced itself."""

    node_id: int
    directory_id: UUID
    boot_id: UUID
    cluster_id: str | None
    #: `directory_id` as bytes, as in `raft.types.ReplicaId`. It is kept because every message needs it.
    directory: bytes

    @classmethod
    def of(cls, message: Hello | HelloReply) -> PeerIdentity:
        directory_id = message.directory_id
        return cls(message.node_id, directory_id, message.boot_id, message.cluster_id, directory_id.bytes)


class PeerEvents(Protocol):
    """Events of the links, for the node."""

    def hello(self) -> Hello:
        """This node's own introduction, with the cluster id that it has now."""

    def check_hello(self, hello: Hello) -> tuple[ErrorCode, str]:
        """NONE and "", or the error and the reason why this peer is refused. Called before this node's answer is made,
        because the answer may commit this node to a cluster."""

    def peer_connected(self, identity: PeerIdentity) -> None:
        """The connection that this node dialled is open, and the handshake has succeeded."""

    def peer_introduced(self, identity: PeerIdentity) -> None:
        """The connection that the peer dialled is open, and the handshake has succeeded."""

    def first_peer_message(self, node_id: int) -> None:
        """The first message has come on a connection that the peer dialled. Messages that the peer sent before on
        another connection may be lost."""

    def peer_disconnected(self, node_id: int) -> None:
        """The connection that this node dialled is closed after a successful handshake. The link dials again."""

    def peer_unreachable(self, node_id: int) -> None:
        """Dialling the peer failed. The link dials again."""

    def peer_message(self, sender: PeerIdentity, message: PeerMessage) -> None:
        """A message has come. Its memory is valid until this method returns."""


class _Stream(asyncio.BufferedProtocol):
    """Frames of one connection, either direction."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer = "?"
        self._frames = FrameReader(MAX_PEER_FRAME_BYTES)
        # The transport calls this before each read, so it is bound directly and costs no further call.
        self.get_buffer = self._frames.get_buffer  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        # The address of a Unix socket is not a tuple.
        self.peer = f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "this machine"
        # With a limit of 0, uvloop writes at once and not at the end of its iteration. A client waits for what
        # followers answer here.
        self.transport.set_write_buffer_limits(high=0)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame, _ in self._frames.received(nbytes):
                self.message(decode_peer(frame))
                if self.transport is None or self.transport.is_closing():
                    return
        except ProtocolError as error:
            log.warning("peer connection closed: bad message", peer=self.peer, reason=str(error))
            self.abort()
        except OSError as error:
            os_errors.report(error)
            self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def message(self, message: PeerMessage) -> None:
        raise NotImplementedError


class _Dialled(_Stream):
    """Our connection to a peer: we send messages, and the peer answers only the handshake."""

    def __init__(self, link: PeerLink) -> None:
        super().__init__()
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.writelines(encode_peer(self._link.events.hello()))

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(self)

    def message(self, message: PeerMessage) -> None:
        if not isinstance(message, HelloReply):
            raise ProtocolError("a peer may send only HelloReply on a connection that it did not dial")
        self._link.introduced(self, message)


class PeerLink:
    """The sending side of the connection to one other node. It reconnects for ever."""

    def __init__(
        self, node_id: int, host: str, port: int, network: Network, turn: Turn, events: PeerEvents
    ) -> None:
        self.node_id = node_id
        self.events = events
        self.identity: PeerIdentity | None = None
        self._host = host
        self._port = port
        self._network = network
        self._turn = turn
        self._stream: _Dialled | None = None
        #: Frames that are sent when the loop iteration ends. Invariant: empty unless `_is_queued` and introduced.
        self._queue: list[Buffer] = []
        self._is_queued = False
        self._lost = asyncio.Event()
        #: The handshake of the present connection has ended, successfully or not.
        self._introduced = asyncio.Event()
        self._last_refusal = ""
        #: Loop time at which the peer last echoed a new ping of this link, and the number of that ping.
        self.last_echo_at = 0.0
        self._last_echo = 0

    def record_echo(self, number: int, now: float) -> None:
        """The peer has received ping `number` (of liveness): this connection works."""
        if number > self._last_echo:
            self._last_echo = number
            self.last_echo_at = now

    @property
    def is_ready(self) -> bool:
        return self.identity is not None

    def send(self, message: PeerMessage) -> None:
        """Queue a message, which is sent when the loop iteration ends. While the link is down the message is dropped:
        Raft and liveness send again."""
        if self.identity is None:
            return
        self._queue.extend(encode_peer(message))
        if not self._is_queued:
            self._is_queued = True
            self._turn.add_link(self)

    def prepare(self, message: PeerMessage) -> Callable[[], None]:
        """Encode a message now. The returned function sends it at once, without waiting for the end of the loop
        iteration."""
        return partial(self._send_now, encode_peer(message))

    def _send_now(self, frame: list[Buffer]) -> None:
        self._queue.extend(frame)
        if not self._is_queued:  # otherwise earlier messages are queued, and this one leaves with them
            self.flush()

    def flush(self) -> None:
        self._is_queued = False
        queue, self._queue = self._queue, []
        if queue and self._stream is not None and self._stream.transport is not None:
            transport = self._stream.transport
            transport.writelines(queue)
            if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                log.warning("peer connection closed: peer does not read", peer=self._stream.peer)
                transport.abort()

    async def run(self) -> None:
        """Dial, wait for the end of the connection, dial again. Each link has one task of the node that runs this."""
        while True:
            self._lost.clear()
            self._introduced.clear()
            stream = _Dialled(self)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._network.connect(self._host, self._port, lambda stream=stream: stream)  # type: ignore[misc]
            except (OSError, TimeoutError):
                self.events.peer_unreachable(self.node_id)
                await asyncio.sleep(RECONNECT_PAUSE_S)
                continue
            self._stream = stream
            try:
                async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                    await self._introduced.wait()
            except TimeoutError:
                # The kernel accepted the connection and no process answered: it is stopped, or one direction is cut.
                stream.abort()
            await self._lost.wait()
            if self._last_refusal:
                await asyncio.sleep(RECONNECT_PAUSE_S * 5)

    def introduced(self, stream: _Dialled, reply: HelloReply) -> None:
        self._introduced.set()
        if reply.error_code != ErrorCode.NONE:
            reason = reply.message or known_error(reply.error_code).name
            if reason != self._last_refusal:
                log.error("refused by peer", node_id=self.node_id, peer=stream.peer, reason=reason)
            self._last_refusal = reason
            stream.abort()
            return
        if reply.node_id != self.node_id:
            log.error("wrong peer", expected=self.node_id, found=reply.node_id, peer=stream.peer)
            self._last_refusal = "wrong node id"
            stream.abort()
            return
        self._last_refusal = ""
        self._stream = stream
        self.identity = PeerIdentity.of(reply)
        self.events.peer_connected(self.identity)

    def connection_lost(self, stream: _Dialled) -> None:
        if self._stream is stream or self._stream is None:
            was_introduced = self.identity is not None
            self._stream = None
            self.identity = None
            self._queue.clear()
            self._introduced.set()
            self._lost.set()
            if was_introduced:
                self.events.peer_disconnected(self.node_id)

    def reconnect(self) -> None:
        """Close the connection and dial again, which begins with a new handshake."""
        if self._stream is not None:
            self._stream.abort()

    def close(self) -> None:
        if self._stream is not None and self._stream.transport is not None:
            self.flush()
            self._stream.transport.close()


class AcceptedPeer(_Stream):
    """A connection that a peer dialled: the peer sends messages, and we answer only the handshake."""

    def __init__(self, events: PeerEvents, closed: Callable[[AcceptedPeer], None]) -> None:
        super().__init__()
        self._events = events
        self._closed = closed
        self.identity: PeerIdentity | None = None
        self._has_sent_message = False
        self._handshake_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._handshake_timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_TIMEOUT_S, self._not_introduced
        )

    def _not_introduced(self) -> None:
        log.warning("peer connection closed: no Hello in time", peer=self.peer)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        self.transport = None
        self._closed(self)

    def _end_handshake(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def message(self, message: PeerMessage) -> None:
        if self.identity is not None:
            self._events.peer_message(self.identity, message)
            if not self._has_sent_message:
                self._has_sent_message = True
                self._events.first_peer_message(self.identity.node_id)
            return
        if not isinstance(message, Hello):
            raise ProtocolError("the first message of a peer is not Hello")
        error, reason = self._events.check_hello(message)
        own = self._events.hello()
        reply = HelloReply(
            error_code=error,
            message=reason or None,
            cluster_id=own.cluster_id,
            node_id=own.node_id,
            directory_id=own.directory_id,
            boot_id=own.boot_id,
        )
        assert self.transport is not None
        self.transport.writelines(encode_peer(reply))
        if error != ErrorCode.NONE:
            log.warning("peer refused", peer=self.peer, node_id=message.node_id, reason=reason)
            self.transport.close()
            return
        self._end_handshake()
        self.identity = PeerIdentity.of(message)
        self._events.peer_introduced(self.identity)
