"""What the two kinds of connections between nodes share: those that this node dials (`dialled_peers`) and those that
it accepts (`accepted_peers`).

Node X sends everything for Y, answers included, on the connection that X dialled. The connection that Y dialled carries
only Y's messages. So each direction fails by itself, as the liveness rules expect (replication.md section 5), and the
nodes need not agree on who dials.

A connection begins with the proofs of both nodes (`broker.security.handshake`). Then each introduces itself
(replication.md section 10): Hello names the cluster id (None: this node is empty), node id, directory id and boot id.
HelloReply names those of the other side, or gives the reason of a refusal.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol, cast
from uuid import UUID

import structlog

from broker.network import os_errors
from protocol.errors import ErrorCode, ProtocolError
from protocol.framing import FrameReader
from protocol.peer import Hello, HelloReply, PeerMessage, decode_peer
from protocol.peer_frames import FrameCheck, plain_frame
from protocol.peer_handshake import HandshakeMessage, decode_handshake, encode_handshake

log = structlog.get_logger()

#: Until both nodes have introduced themselves, frames are small.
MAX_HANDSHAKE_FRAME_BYTES = 4096
#: A frame between nodes carries at most one range of batches, and a batch is at most a client frame (100 MiB).
MAX_PEER_FRAME_BYTES = (100 << 20) + (1 << 20)
#: For the proofs and the introductions together.
HANDSHAKE_TIMEOUT_S = 2.0


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
        """A message has come. Its memory is valid until this method returns. Raises ProtocolError if it cannot be true:
        then nothing was done about it, and the connection is closed."""


class PeerStream(asyncio.BufferedProtocol):
    """Frames of one connection, either direction."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer = "?"
        self._frames = FrameReader(MAX_HANDSHAKE_FRAME_BYTES)
        #: Checks what comes in. None until both nodes have proved themselves.
        self._incoming: FrameCheck | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        # The address of a Unix socket is not a tuple.
        self.peer = f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "this machine"
        # With a limit of 0, uvloop writes at once and not at the end of its iteration. A client waits for what
        # followers answer here.
        self.transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame, _ in self._frames.received(nbytes):
                if self._incoming is None:
                    self.handshake_message(decode_handshake(frame))
                else:
                    self.message(decode_peer(self._incoming.open(frame)))
                if self.transport is None or self.transport.is_closing():
                    return
        except ProtocolError as error:
            self.bad_message(error)
            self.abort()
        except OSError as error:
            os_errors.report(error)
            self.abort()

    def allow_large_frames(self) -> None:
        """The peer has introduced itself. It has sent nothing since, because it waits for the answer."""
        if self._frames.pending_bytes:
            raise ProtocolError("a message before the answer to Hello")
        self._frames = FrameReader(MAX_PEER_FRAME_BYTES)

    def send_handshake(self, message: HandshakeMessage) -> None:
        assert self.transport is not None
        self.transport.writelines(plain_frame(encode_handshake(message)))

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def bad_message(self, error: ProtocolError) -> None:
        """The peer has sent what is no message, or cannot be true. The connection is closed then."""
        log.warning(
            "peer connection closed: bad message",
            peer=self.peer,
            reason=str(error),
            cause=self.peer.rpartition(":")[0],
        )

    def handshake_message(self, message: HandshakeMessage) -> None:
        """Before both nodes have proved themselves. Raises ProtocolError for a message that is not due."""
        raise NotImplementedError

    def message(self, message: PeerMessage) -> None:
        """Afterwards. Raises ProtocolError for a message that is not due or cannot be true."""
        raise NotImplementedError
