"""Connections that other nodes dial: the handshake, then their messages.

Anybody can open such a connection, so before the handshake is over it costs little: few connections at a time, small
frames, a deadline. A stranger can make nothing of them but other strangers' ends, and a line in the log now and then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from broker.network.peers import HANDSHAKE_TIMEOUT_S, PeerEvents, PeerIdentity, PeerStream
from broker.security.handshake import Acceptor, Refusal
from protocol.errors import ErrorCode, ProtocolError
from protocol.peer import Hello, HelloReply, PeerMessage, encode_peer
from protocol.peer_frames import FrameCheck
from protocol.peer_handshake import DiallerProof, HandshakeMessage, HandshakeRequest

log = structlog.get_logger()

#: Connections that are in their handshake at the same time. A handshake takes some milliseconds.
MAX_HANDSHAKES = 64


class AcceptedPeers:
    """The connections that others dialled, and the bounds on those that are in their handshake."""

    def __init__(self, events: PeerEvents, new_handshake: Callable[[], Acceptor]) -> None:
        self.events = events
        self.new_handshake = new_handshake
        #: Oldest first.
        self._open: dict[AcceptedPeer, None] = {}
        self._in_handshake: dict[AcceptedPeer, None] = {}
        #: The connection on which a node has introduced itself, by node. There is one at most: otherwise a message of
        #: an older one could be handled after those of a newer one, which were said later.
        self._introduced: dict[int, AcceptedPeer] = {}

    def accept(self) -> AcceptedPeer:
        """Protocol factory of the listener."""
        return AcceptedPeer(self)

    def opened(self, accepted: AcceptedPeer) -> None:
        """A connection begins. If too many are in their handshake, the oldest one of the address that has most of them
        is closed. A node needs a moment only, and no stranger takes the place of nodes at other addresses."""
        self._open[accepted] = None
        self._in_handshake[accepted] = None
        if len(self._in_handshake) > MAX_HANDSHAKES:
            hosts = Counter(each.host for each in self._in_handshake)
            ((busiest, _),) = hosts.most_common(1)
            victim = next(each for each in self._in_handshake if each.host == busiest)
            self.log_failure(victim, f"more than {MAX_HANDSHAKES} connections in their handshake")
            victim.abort()
            self.handshake_ended(victim)

    def handshake_ended(self, accepted: AcceptedPeer) -> None:
        self._in_handshake.pop(accepted, None)

    def introduced(self, accepted: AcceptedPeer) -> bool:
        """The node that has proved itself here introduces itself. Its older connection ends at once. Returns whether
        this is the newest one; the node has given it up otherwise, and it is to be closed."""
        node_id = accepted.proved_id
        assert node_id is not None
        other = self._introduced.get(node_id)
        if other is not None:
            if next(each for each in self._open if each in (accepted, other)) is accepted:
                return False
            other.abort()
        self._introduced[node_id] = accepted
        return True

    def closed(self, accepted: AcceptedPeer) -> None:
        self._open.pop(accepted, None)
        self._in_handshake.pop(accepted, None)
        if accepted.proved_id is not None and self._introduced.get(accepted.proved_id) is accepted:
            del self._introduced[accepted.proved_id]

    def log_failure(self, accepted: AcceptedPeer, reason: str) -> None:
        """Somebody is not let in. A stranger must not fill the log."""
        log.warning("peer refused", peer=accepted.peer, reason=reason, cause=accepted.host)

    def abort_all(self) -> None:
        for accepted in list(self._open):
            accepted.abort()


class AcceptedPeer(PeerStream):
    """A connection that a peer dialled: the peer sends messages, and we answer only the handshake."""

    def __init__(self, peers: AcceptedPeers) -> None:
        super().__init__()
        self._peers = peers
        self._events = peers.events
        self._handshake = peers.new_handshake()
        #: Makes the frame of HelloReply. None until both nodes have proved themselves.
        self._outgoing: FrameCheck | None = None
        #: Who has proved itself.
        self.proved_id: int | None = None
        self.identity: PeerIdentity | None = None
        self._has_sent_message = False
        self._handshake_timer: asyncio.TimerHandle | None = None

    @property
    def host(self) -> str:
        """The address of the peer without its port."""
        return self.peer.rpartition(":")[0]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._handshake_timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_TIMEOUT_S, self._not_introduced
        )
        self._peers.opened(self)

    def _not_introduced(self) -> None:
        self._peers.log_failure(self, "it did not prove and introduce itself in time")
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self.transport = None
        self._peers.closed(self)

    def _cancel_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def bad_message(self, error: ProtocolError) -> None:
        if self.identity is None:
            self._peers.log_failure(self, str(error))
        else:
            super().bad_message(error)

    def handshake_message(self, message: HandshakeMessage) -> None:
        if isinstance(message, HandshakeRequest):
            challenge = self._handshake.requested(message)
            if isinstance(challenge, Refusal):
                self._refuse(challenge)
            else:
                self.send_handshake(challenge)
        elif isinstance(message, DiallerProof):
            answer = self._handshake.proved(message)
            if isinstance(answer, Refusal):
                self._refuse(answer)
                return
            proof, session = answer
            self.proved_id = message.node_id
            self._incoming, self._outgoing = session.dialler_frames, session.acceptor_frames
            self.send_handshake(proof)
        else:
            raise ProtocolError(f"{type(message).__name__} from a node that dialled")

    def _refuse(self, refusal: Refusal) -> None:
        self.send_handshake(refusal.reply)
        self._peers.log_failure(self, refusal.reason)
        self._close()

    def message(self, message: PeerMessage) -> None:
        if self.identity is not None:
            self._events.peer_message(self.identity, message)
            if not self._has_sent_message:
                self._has_sent_message = True
                self._events.first_peer_message(self.identity.node_id)
            return
        if not isinstance(message, Hello):
            raise ProtocolError("the first message of a peer is not Hello")
        if message.node_id != self.proved_id:
            raise ProtocolError(
                f"node {self.proved_id} has proved itself and says that it is {message.node_id}"
            )
        self._introduce(message)

    def _introduce(self, hello: Hello) -> None:
        error, reason = self._events.check_hello(hello)
        if error == ErrorCode.NONE and not self._peers.introduced(self):
            self.abort()
            return
        own = self._events.hello()
        reply = HelloReply(
            error_code=error,
            message=reason or None,
            cluster_id=own.cluster_id,
            node_id=own.node_id,
            directory_id=own.directory_id,
            boot_id=own.boot_id,
        )
        assert self.transport is not None and self._outgoing is not None
        self.transport.writelines(self._outgoing.seal(encode_peer(reply)))
        if error != ErrorCode.NONE:
            log.warning("peer refused", peer=self.peer, node_id=hello.node_id, reason=reason, cause=self.host)
            self._close()
            return
        self._cancel_timer()
        self._peers.handshake_ended(self)
        self.allow_large_frames()
        self.identity = PeerIdentity.of(hello)
        self._events.peer_introduced(self.identity)

    def _close(self) -> None:
        assert self.transport is not None
        self.transport.close()
