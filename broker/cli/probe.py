"""Ask one broker how it is: ApiVersions and Metadata over a plain socket.

A whole client library takes longer to import than this takes to ask, and it hides which broker answered.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple, TypeVar

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.headers import RequestHeader, encode_request_header, parse_response_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import Message

M = TypeVar("M", bound=Message)

_API_VERSIONS_VERSION = 0
_METADATA_VERSION = 4
_MAX_RESPONSE_BYTES = 1 << 20


class ProbeError(Exception):
    """The broker did not answer as a broker does; the text says why."""


class View(NamedTuple):
    """The cluster as one broker sees it."""

    cluster_id: str | None
    #: -1 where it knows of no controller, so cannot see a majority.
    controller_id: int
    #: Node id -> advertised host:port.
    brokers: dict[int, str]

    def is_complete(self, node_ids: set[int]) -> bool:
        return self.controller_id >= 0 and node_ids <= self.brokers.keys()


def probe(host: str, port: int, timeout_s: float) -> View:
    """Raises ProbeError."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            versions = _ask(
                connection,
                ApiKey.API_VERSIONS,
                _API_VERSIONS_VERSION,
                ApiVersionsRequest(),
                ApiVersionsResponse,
            )
            if versions.error_code:
                raise ProbeError(f"{host}:{port} answers ApiVersions with error {versions.error_code}")
            metadata = _ask(
                connection,
                ApiKey.METADATA,
                _METADATA_VERSION,
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                MetadataResponse,
            )
    except (OSError, ProtocolError, struct.error) as error:
        raise ProbeError(f"no broker answers at {host}:{port}: {error}") from None
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    return View(metadata.cluster_id, metadata.controller_id, brokers)


def _ask(connection: socket.socket, key: ApiKey, version: int, request: Message, response: type[M]) -> M:
    body = encode_request_header(RequestHeader(key, version, 1, "varve-cli")) + encode(request, version)
    connection.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 <= size <= _MAX_RESPONSE_BYTES:
        raise ProtocolError(f"an answer of {size} bytes")
    frame = memoryview(_receive(connection, size))
    _, position = parse_response_header(key, version, frame)
    return decode(response, version, frame, position)[0]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ProtocolError("the connection was closed in the middle of an answer")
        received += part
    return bytes(received)
