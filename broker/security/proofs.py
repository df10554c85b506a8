"""Proofs of knowing the cluster's secret: HMAC-SHA256 (RFC 2104) over all that the two nodes have said.

Each side proves itself under a label of its own, so that a proof cannot be sent back to where it came from. Both nonces
are in it, so that a proof of another connection is wrong; and the ids of both nodes and the dialled address, so that a
proof that was meant for another node is of no use to who received it.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from typing import NamedTuple

from broker.security.cluster_secret import ClusterSecret

NONCE_BYTES = 32
PROOF_BYTES = 32

DIALLER = b"varve peer: dialler"
ACCEPTOR = b"varve peer: acceptor"
DIALLER_FRAMES = b"varve peer: frames of the dialler"
ACCEPTOR_FRAMES = b"varve peer: frames of the acceptor"

_NUMBERS = struct.Struct(">Bhii32s32s")


class Transcript(NamedTuple):
    """What was said in a handshake. The nonces have NONCE_BYTES each."""

    version: int
    dialler_nonce: bytes
    acceptor_nonce: bytes
    dialler_id: int
    target_id: int
    """The node that the dialler means to reach."""
    address: str
    """The address that it dialled."""

    def encode(self, label: bytes) -> bytes:
        """No two transcripts and labels look the same: what has no fixed size comes last, and says its size before."""
        numbers = _NUMBERS.pack(
            len(label),
            self.version,
            self.dialler_id,
            self.target_id,
            self.dialler_nonce,
            self.acceptor_nonce,
        )
        return numbers + label + self.address.encode()


class Authenticator:
    """A node's part in proofs: its secret, and its source of nonces."""

    def __init__(self, secret: ClusterSecret, entropy: Callable[[int], bytes]) -> None:
        """`entropy` returns so many bytes that nobody can predict."""
        self.secret = secret
        self._entropy = entropy

    def new_nonce(self) -> bytes:
        return self._entropy(NONCE_BYTES)

    def find_key(self, label: bytes, transcript: Transcript, proof: bytes) -> bytes | None:
        """The accepted secret with which this proof was made. None: it proves nothing."""
        return next((key for key in self.secret.accepted if is_proof(key, label, transcript, proof)), None)


def is_proof(key: bytes, label: bytes, transcript: Transcript, proof: bytes) -> bool:
    """Whether `proof` was made with this key. How long this takes says nothing about the right proof."""
    return hmac.compare_digest(prove(key, label, transcript), proof)


def prove(key: bytes, label: bytes, transcript: Transcript) -> bytes:
    """The proof of who knows `key`."""
    return hmac.digest(key, transcript.encode(label), "sha256")


def checksum_start(key: bytes, label: bytes, transcript: Transcript) -> int:
    """Where the checksums of one direction of this connection start (`protocol.peer_frames.FrameCheck`)."""
    return int.from_bytes(prove(key, label, transcript)[:4], "big")
