"""A stranger on the listener for nodes, who does not know the cluster's secret."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

from protocol.errors import ErrorCode, ProtocolError
from protocol.peer import Hello, PeerMessage, encode_peer
from protocol.peer_frames import plain_frame
from protocol.peer_handshake import (
    PEER_PROTOCOL_VERSION,
    AcceptorProof,
    DiallerProof,
    HandshakeChallenge,
    HandshakeMessage,
    HandshakeRequest,
    decode_handshake,
    encode_handshake,
)
from protocol.schema import NIL_UUID
from tests.hostile.attacks.attack import Seen
from tests.hostile.target import Address, Target

_NONCE_BYTES = 32
_SIZE = struct.Struct(">i")
#: A connection that has not proved itself by then has to be closed. (The deadline of a node is 5 s.)
_CLOSED_WITHIN_S = 20.0
_MANY = 300


def strangers(target: Target) -> Seen:
    """On the listener for nodes: guessed proofs, messages of nodes without a proof, a node's own challenge sent back,
    frames of any size, and hundreds of connections that never finish. None is let in or told anything."""
    seen = Seen()
    if not target.peers:
        seen.counts["no address known"] += 1
    for address in target.peers.values():
        for name, act in _ACTS.items():
            _try(seen, f"{name} at {address}", address, act)
        _never_finish(seen, address)
    return seen


class _Stranger:
    """A connection to a node, and everything that came back on it."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address.host, address.port), _CLOSED_WITHIN_S)
        self.received = b""

    def say(self, message: HandshakeMessage) -> None:
        self.send(b"".join(map(bytes, plain_frame(encode_handshake(message)))))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> HandshakeMessage:
        """The next message. Raises OSError if the connection is closed, ProtocolError if it is none of a handshake."""
        size = _SIZE.unpack(self._exactly(4))[0]
        return decode_handshake(memoryview(self._exactly(size)))

    def rest(self) -> bytes:
        """What else comes until the node closes the connection. Raises TimeoutError if it does not."""
        before = len(self.received)
        try:
            while data := self._socket.recv(1 << 16):
                self.received += data
        except ConnectionError:
            pass
        return self.received[before:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("closed")
            data += part
        self.received += data
        return data

    def close(self) -> None:
        self._socket.close()


def _request(nonce: bytes) -> HandshakeRequest:
    return HandshakeRequest(version=PEER_PROTOCOL_VERSION, has_secret=True, nonce=nonce)


def _guess(stranger: _Stranger) -> None:
    """A proof that is none. The node says so, and nothing else."""
    stranger.say(_request(os.urandom(_NONCE_BYTES)))
    challenge = stranger.frame()
    assert isinstance(challenge, HandshakeChallenge)
    stranger.say(DiallerProof(node_id=1, target_id=2, address="x:1", proof=os.urandom(32)))
    answer = stranger.frame()
    assert isinstance(answer, AcceptorProof)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not answer.proof and answer.message is None


def _reflect(stranger: _Stranger) -> None:
    """The node's own nonce as the nonce and as the proof."""
    stranger.say(_request(os.urandom(_NONCE_BYTES)))
    challenge = stranger.frame()
    assert isinstance(challenge, HandshakeChallenge)
    stranger.say(DiallerProof(node_id=1, target_id=1, address="x:1", proof=challenge.nonce))
    answer = stranger.frame()
    assert isinstance(answer, AcceptorProof)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def _hello(stranger: _Stranger) -> None:
    """The first message after a handshake, without one."""
    hello: PeerMessage = Hello(cluster_id=None, node_id=1, directory_id=NIL_UUID, boot_id=NIL_UUID)
    stranger.send(b"".join(map(bytes, plain_frame(encode_peer(hello)))))


def _other_version(stranger: _Stranger) -> None:
    stranger.say(HandshakeRequest(version=1, has_secret=True, nonce=os.urandom(_NONCE_BYTES)))
    challenge = stranger.frame()
    assert isinstance(challenge, HandshakeChallenge)
    assert challenge.error_code == ErrorCode.UNSUPPORTED_VERSION and not challenge.nonce


def _size(size: int, sent: int) -> Callable[[_Stranger], None]:
    def act(stranger: _Stranger) -> None:
        stranger.send(_SIZE.pack(size) + bytes(sent))

    return act


_ACTS: dict[str, Callable[[_Stranger], None]] = {
    "a guessed proof": _guess,
    "a challenge sent back": _reflect,
    "hello without a proof": _hello,
    "another version": _other_version,
    "a frame of 2 GiB": _size((1 << 31) - 1, 1 << 16),
    "a frame of 5 KB": _size(5000, 4000),
    "a negative size": _size(-1, 10),
    "zeros": _size(0, 4096),
    "half a frame": _size(100, 50),
}


def _try(seen: Seen, name: str, address: Address, act: Callable[[_Stranger], None]) -> None:
    stranger = _Stranger(address)
    try:
        act(stranger)
        told = stranger.rest()
    except AssertionError:
        seen.defects.append(f"{name}: was answered otherwise")
    except ProtocolError as error:
        seen.defects.append(f"{name}: {error}")
    except TimeoutError:
        seen.defects.append(f"{name}: the connection stays open")
    except OSError:
        seen.counts["closed"] += 1
    else:
        seen.counts["closed"] += 1
        if told:
            seen.defects.append(f"{name}: {len(told)} bytes came back")
    finally:
        stranger.close()


def _never_finish(seen: Seen, address: Address) -> None:
    """Many at once that begin a handshake and say no more."""
    open_ones: list[_Stranger] = []
    for _ in range(_MANY):
        try:
            stranger = _Stranger(address)
            stranger.say(_request(os.urandom(_NONCE_BYTES)))
            open_ones.append(stranger)
        except OSError:
            seen.counts["closed"] += 1
    ends = time.monotonic() + _CLOSED_WITHIN_S
    for stranger in open_ones:
        stranger._socket.settimeout(max(0.1, ends - time.monotonic()))
        try:
            stranger.rest()
            seen.counts["closed"] += 1
        except TimeoutError:
            seen.defects.append(f"a handshake that is not finished stays open at {address}")
        stranger.close()
