"""The first messages of a connection between nodes, with which both prove that they know the cluster's secret.

    dialler                                   acceptor
    HandshakeRequest: version, nonce     ->
                                         <-   HandshakeChallenge: nonce
    DiallerProof: ids, address, proof    ->
                                         <-   AcceptorProof: proof

Then Hello and HelloReply follow (`protocol.peer`). Until the dialler has proved itself it is told nothing that it does
not know: no id, no name. What the proofs are is told in `broker.security.proofs`.
"""

from __future__ import annotations

from protocol.peer_frames import message_codec
from protocol.schema import BOOLEAN, BYTES, INT16, INT32, STRING, Message, field

#: Version 6: leaders ask for digests of logs.
#: Version 5: reports of compaction say what is in its way.
#: Version 4: nodes prove themselves, and frames have checksums. In version 3 the first message was Hello.
PEER_PROTOCOL_VERSION = 6


class HandshakeMessage(Message):
    """Root of the messages of a handshake."""


class HandshakeRequest(HandshakeMessage):
    version: int = field(INT16)
    """PEER_PROTOCOL_VERSION of the dialler."""
    has_secret: bool = field(BOOLEAN)
    """False: the dialler has no secret, and its proof proves nothing."""
    nonce: bytes = field(BYTES)


class HandshakeChallenge(HandshakeMessage):
    error_code: int = field(INT16, default=0)
    """UNSUPPORTED_VERSION: another version. UNSUPPORTED_SASL_MECHANISM: only one of the two nodes has a secret. The
    connection ends then."""
    version: int = field(INT16)
    """PEER_PROTOCOL_VERSION of the acceptor."""
    nonce: bytes = field(BYTES, default=b"")


class DiallerProof(HandshakeMessage):
    node_id: int = field(INT32)
    target_id: int = field(INT32)
    """The node that the dialler means to reach."""
    address: str = field(STRING)
    """The address that it dialled, host:port."""
    proof: bytes = field(BYTES)


class AcceptorProof(HandshakeMessage):
    error_code: int = field(INT16, default=0)
    """SASL_AUTHENTICATION_FAILED: the proof is wrong. INVALID_REQUEST: another node is meant; `message` says which one
    this is, because the proof was right. The connection ends then."""
    message: str | None = field(STRING, nullable="0+", default=None)
    proof: bytes = field(BYTES, default=b"")


HANDSHAKE_KINDS: dict[int, type[HandshakeMessage]] = {
    101: HandshakeRequest,
    102: HandshakeChallenge,
    103: DiallerProof,
    104: AcceptorProof,
}

encode_handshake, decode_handshake = message_codec(HANDSHAKE_KINDS)
