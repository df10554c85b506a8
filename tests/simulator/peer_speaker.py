"""A connection to the listener for nodes, by anybody: a stranger, or somebody who knows the secret and lies."""

from __future__ import annotations

import asyncio

from broker.security.handshake import Dialler, HandshakeRefusedError
from protocol.errors import ErrorCode
from protocol.framing import FrameReader
from protocol.peer import Hello, HelloReply, PeerMessage, decode_peer, encode_peer
from protocol.peer_frames import FrameCheck, plain_frame
from protocol.peer_handshake import (
    AcceptorProof,
    HandshakeChallenge,
    HandshakeMessage,
    decode_handshake,
    encode_handshake,
)

MAX_FRAME_BYTES = 1 << 20


class PeerSpeaker(asyncio.BufferedProtocol):
    """Keeps what it is told. With `handshake` it proves itself, and with `hello` it introduces itself then; otherwise
    the test says everything."""

    def __init__(self, handshake: Dialler | None = None, hello: Hello | None = None) -> None:
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._handshake = handshake
        self._hello = hello
        self._incoming: FrameCheck | None = None
        self.outgoing: FrameCheck | None = None
        self.transport: asyncio.Transport
        self.told: list[HandshakeMessage | PeerMessage] = []
        self.bytes_told = 0
        self.is_lost = False

    @property
    def is_introduced(self) -> bool:
        return any(isinstance(x, HelloReply) and x.error_code == ErrorCode.NONE for x in self.told)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._handshake is not None:
            self.send_handshake(self._handshake.begin())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_told += nbytes
        for frame, _ in self._frames.received(nbytes):
            copy = memoryview(bytes(frame))
            if self._incoming is None:
                self._handshake_message(decode_handshake(copy))
            else:
                self.told.append(decode_peer(self._incoming.open(copy)))

    def _handshake_message(self, message: HandshakeMessage) -> None:
        self.told.append(message)
        if self._handshake is None:
            return
        if isinstance(message, HandshakeChallenge):
            self.send_handshake(self._handshake.challenged(message))
        elif isinstance(message, AcceptorProof):
            try:
                session = self._handshake.answered(message)
            except HandshakeRefusedError:
                return  # the connection is going to be closed
            self.outgoing, self._incoming = session.dialler_frames, session.acceptor_frames
            if self._hello is not None:
                self.send(self._hello)

    def send_handshake(self, message: HandshakeMessage) -> None:
        self.transport.writelines(plain_frame(encode_handshake(message)))

    def send(self, message: PeerMessage) -> None:
        """Under the checksum of this connection."""
        assert self.outgoing is not None
        if not self.is_lost:
            self.transport.writelines(self.outgoing.seal(encode_peer(message)))

    def send_bytes(self, data: bytes) -> None:
        self.transport.write(data)
