"""The handshake of two nodes (`protocol.peer_handshake`) as values, one for each side: messages in, messages out.

The dialler proves itself first. Who only listens learns nothing with which it could try out secrets at home: it would
have to be dialled by a node.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.security.cluster_secret import VARIABLE
from broker.security.proofs import (
    ACCEPTOR,
    ACCEPTOR_FRAMES,
    DIALLER,
    DIALLER_FRAMES,
    NONCE_BYTES,
    Authenticator,
    Transcript,
    checksum_start,
    is_proof,
    prove,
)
from protocol.errors import ErrorCode, ProtocolError, known_error
from protocol.peer_frames import FrameCheck
from protocol.peer_handshake import (
    PEER_PROTOCOL_VERSION,
    AcceptorProof,
    DiallerProof,
    HandshakeChallenge,
    HandshakeRequest,
)

_SETTING = f"(varve.cluster.secret, {VARIABLE})"


class Session(NamedTuple):
    """Both nodes have proved themselves: the checks of the frames of either direction."""

    dialler_frames: FrameCheck
    acceptor_frames: FrameCheck


class HandshakeRefusedError(Exception):
    """The other node is refused, or has refused this one. The message is for the log of this node."""


class Refusal(NamedTuple):
    """Send `reply`, close the connection, log `reason`."""

    reply: HandshakeChallenge | AcceptorProof
    reason: str


class Dialler:
    """The side that opened the connection."""

    def __init__(self, authenticator: Authenticator, node_id: int, target_id: int, address: str) -> None:
        """`address`: what was dialled, as host:port."""
        self._authenticator = authenticator
        self._node_id = node_id
        self._target_id = target_id
        self._address = address
        self._nonce = authenticator.new_nonce()
        #: Set when the own proof was sent.
        self._transcript: Transcript | None = None

    def begin(self) -> HandshakeRequest:
        return HandshakeRequest(
            version=PEER_PROTOCOL_VERSION,
            has_secret=bool(self._authenticator.secret),
            nonce=self._nonce,
        )

    def challenged(self, challenge: HandshakeChallenge) -> DiallerProof:
        """Raises HandshakeRefusedError, ProtocolError."""
        if self._transcript is not None:
            raise ProtocolError("a second HandshakeChallenge")
        if challenge.error_code != ErrorCode.NONE:
            raise HandshakeRefusedError(self._refusal_of(challenge))
        if len(challenge.nonce) != NONCE_BYTES:
            raise ProtocolError(f"a nonce of {len(challenge.nonce)} bytes")
        self._transcript = Transcript(
            PEER_PROTOCOL_VERSION,
            self._nonce,
            challenge.nonce,
            self._node_id,
            self._target_id,
            self._address,
        )
        return DiallerProof(
            node_id=self._node_id,
            target_id=self._target_id,
            address=self._address,
            proof=prove(self._authenticator.secret.own, DIALLER, self._transcript),
        )

    def answered(self, answer: AcceptorProof) -> Session:
        """Raises HandshakeRefusedError, ProtocolError."""
        if self._transcript is None:
            raise ProtocolError("AcceptorProof before HandshakeChallenge")
        code = known_error(answer.error_code)
        if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise HandshakeRefusedError(f"it has another cluster secret than this node {_SETTING}")
        if code != ErrorCode.NONE:
            raise HandshakeRefusedError(answer.message or code.name)
        key = self._authenticator.secret.own
        if not is_proof(key, ACCEPTOR, self._transcript, answer.proof):
            raise HandshakeRefusedError(
                "it accepts this node's proof, but does not prove that it knows the secret"
            )
        return _session(key, self._transcript)

    def _refusal_of(self, challenge: HandshakeChallenge) -> str:
        code = known_error(challenge.error_code)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return f"it speaks peer protocol {challenge.version}, this node {PEER_PROTOCOL_VERSION}"
        if code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return code.name
        if self._authenticator.secret:
            return f"this node has a cluster secret and that one has none {_SETTING}"
        return f"that node has a cluster secret and this one has none {_SETTING}"


class Acceptor:
    """The side that listens."""

    def __init__(self, authenticator: Authenticator, node_id: int) -> None:
        self._authenticator = authenticator
        self._node_id = node_id
        #: (the dialler's nonce, the own one), when the own one was sent.
        self._nonces: tuple[bytes, bytes] | None = None

    def requested(self, request: HandshakeRequest) -> HandshakeChallenge | Refusal:
        """Raises ProtocolError."""
        if self._nonces is not None:
            raise ProtocolError("a second HandshakeRequest")
        if request.version != PEER_PROTOCOL_VERSION:
            return _refuse_request(
                ErrorCode.UNSUPPORTED_VERSION,
                f"it speaks peer protocol {request.version}, this node {PEER_PROTOCOL_VERSION}",
            )
        if len(request.nonce) != NONCE_BYTES:
            raise ProtocolError(f"a nonce of {len(request.nonce)} bytes")
        if request.has_secret != bool(self._authenticator.secret):
            has, lacks = ("it", "this node") if request.has_secret else ("this node", "it")
            return _refuse_request(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{has} has a cluster secret and {lacks} has none {_SETTING}",
            )
        self._nonces = request.nonce, self._authenticator.new_nonce()
        return HandshakeChallenge(version=PEER_PROTOCOL_VERSION, nonce=self._nonces[1])

    def proved(self, message: DiallerProof) -> tuple[AcceptorProof, Session] | Refusal:
        """Raises ProtocolError."""
        if self._nonces is None:
            raise ProtocolError("DiallerProof before HandshakeRequest")
        transcript = Transcript(
            PEER_PROTOCOL_VERSION, *self._nonces, message.node_id, message.target_id, message.address
        )
        self._nonces = None
        key = self._authenticator.find_key(DIALLER, transcript, message.proof)
        if key is None:
            return Refusal(
                AcceptorProof(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED),
                f"it does not know the cluster secret {_SETTING}",
            )
        if message.target_id != self._node_id:
            reason = f"{message.address} is node {self._node_id}, not node {message.target_id}"
            reply = AcceptorProof(error_code=ErrorCode.INVALID_REQUEST, message=reason)
            return Refusal(reply, f"{reason}, which node {message.node_id} means to reach")
        return AcceptorProof(proof=prove(key, ACCEPTOR, transcript)), _session(key, transcript)


def _refuse_request(code: ErrorCode, reason: str) -> Refusal:
    return Refusal(HandshakeChallenge(error_code=code, version=PEER_PROTOCOL_VERSION), reason)


def _session(key: bytes, transcript: Transcript) -> Session:
    return Session(
        FrameCheck(checksum_start(key, DIALLER_FRAMES, transcript)),
        FrameCheck(checksum_start(key, ACCEPTOR_FRAMES, transcript)),
    )
