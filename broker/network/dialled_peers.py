"""Links to other nodes: the connection that this node dials, the handshake on it, one send per loop iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from broker.environment import Network
from broker.network.peers import HANDSHAKE_TIMEOUT_S, PeerEvents, PeerIdentity, PeerStream
from broker.scheduling.turn import Turn
from broker.security.handshake import Dialler, HandshakeRefusedError
from protocol.errors import ErrorCode, ProtocolError, known_error
from protocol.peer import HelloReply, PeerMessage, encode_peer
from protocol.peer_frames import FrameCheck
from protocol.peer_handshake import AcceptorProof, HandshakeChallenge, HandshakeMessage
from storage.disk import Buffer

log = structlog.get_logger()

#: Unsent bytes at which a connection is closed, because the other side does not read. Raft sends again what was lost.
MAX_UNSENT_BYTES = 256 << 20
CONNECT_TIMEOUT_S = 1.0
RECONNECT_PAUSE_S = 0.1
REFUSED_PAUSE_S = 0.5
#: A connection that was closed sooner than this is not dialled again at once: the peer might close it each time.
SHORT_LIFE_S = 0.5


class _Dialled(PeerStream):
    """Our connection to a peer: we send messages, and the peer answers only the handshake."""

    def __init__(self, link: PeerLink, handshake: Dialler) -> None:
        super().__init__()
        self._link = link
        self._handshake = handshake
        #: Makes the frames. None until both nodes have proved themselves.
        self.outgoing: FrameCheck | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send_handshake(self._handshake.begin())

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(self)

    def handshake_message(self, message: HandshakeMessage) -> None:
        try:
            if isinstance(message, HandshakeChallenge):
                self.send_handshake(self._handshake.challenged(message))
            elif isinstance(message, AcceptorProof):
                session = self._handshake.answered(message)
                self.outgoing, self._incoming = session.dialler_frames, session.acceptor_frames
                assert self.transport is not None
                self.transport.writelines(self.outgoing.seal(encode_peer(self._link.events.hello())))
            else:
                raise ProtocolError(f"{type(message).__name__} from a node that was dialled")
        except HandshakeRefusedError as refused:
            self._link.refused(self, str(refused))

    def message(self, message: PeerMessage) -> None:
        if not isinstance(message, HelloReply) or self._link.is_ready:
            raise ProtocolError("a peer may send only HelloReply on a connection that it did not dial")
        self._link.introduced(self, message)


class PeerLink:
    """The sending side of the connection to one other node. It reconnects for ever."""

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        network: Network,
        turn: Turn,
        events: PeerEvents,
        new_handshake: Callable[[], Dialler],
    ) -> None:
        self.node_id = node_id
        self.events = events
        self.identity: PeerIdentity | None = None
        self._host = host
        self._port = port
        self._network = network
        self._turn = turn
        self._new_handshake = new_handshake
        #: The present connection, also while it is being made. None after its end.
        self._stream: _Dialled | None = None
        #: Makes the frames of the present connection. Invariant: None exactly while `identity` is.
        self._outgoing: FrameCheck | None = None
        #: This node itself has closed the present connection, to dial anew.
        self._is_reconnecting = False
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
        if self._outgoing is None:
            return
        self._queue.extend(self._outgoing.seal(encode_peer(message)))
        if not self._is_queued:
            self._is_queued = True
            self._turn.add_link(self)

    def prepare(self, message: PeerMessage) -> Callable[[], None]:
        """Encode a message now. The returned function sends it at once, without waiting for the end of the loop
        iteration."""
        return partial(self._send_now, encode_peer(message))

    def _send_now(self, parts: list[Buffer]) -> None:
        if self._outgoing is None:
            return
        self._queue.extend(
            self._outgoing.seal(parts)
        )  # not before: the checksum depends on the order of frames
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
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            self._introduced.clear()
            self._is_reconnecting = False
            dialled_at = loop.time()
            # Before there is a connection: it may end before `connect` returns.
            stream = self._stream = _Dialled(self, self._new_handshake())
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._network.connect(self._host, self._port, lambda stream=stream: stream)  # type: ignore[misc]
            except (OSError, TimeoutError):
                self._stream = None
                self.events.peer_unreachable(self.node_id)
                await asyncio.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                    await self._introduced.wait()
            except TimeoutError:
                # The kernel accepted the connection and no process answered: it is stopped, or one direction is cut.
                stream.abort()
            await self._lost.wait()
            if self._last_refusal:
                await asyncio.sleep(REFUSED_PAUSE_S)
            elif not self._is_reconnecting and loop.time() < dialled_at + SHORT_LIFE_S:
                await asyncio.sleep(RECONNECT_PAUSE_S)

    def introduced(self, stream: _Dialled, reply: HelloReply) -> None:
        if reply.error_code != ErrorCode.NONE:
            self.refused(stream, reply.message or known_error(reply.error_code).name)
            return
        if reply.node_id != self.node_id:
            self.refused(stream, f"it is node {reply.node_id}")
            return
        self._introduced.set()
        self._last_refusal = ""
        self._outgoing = stream.outgoing
        self.identity = PeerIdentity.of(reply)
        self.events.peer_connected(self.identity)

    def refused(self, stream: _Dialled, reason: str) -> None:
        """One of the two nodes does not want this connection. The reason is logged once, and it is dialled again."""
        self._introduced.set()
        if reason != self._last_refusal:
            log.error("refused by peer", node_id=self.node_id, peer=stream.peer, reason=reason)
        self._last_refusal = reason
        stream.abort()

    def connection_lost(self, stream: _Dialled) -> None:
        if self._stream is stream:
            was_introduced = self.identity is not None
            self._stream = self._outgoing = None
            self.identity = None
            self._queue.clear()
            self._introduced.set()
            self._lost.set()
            if was_introduced:
                self.events.peer_disconnected(self.node_id)

    def reconnect(self) -> None:
        """Close the connection and dial again, which begins with a new handshake."""
        self._is_reconnecting = True
        if self._stream is not None:
            self._stream.abort()

    def close(self) -> None:
        if self._stream is not None and self._stream.transport is not None:
            self.flush()
            self._stream.transport.close()
