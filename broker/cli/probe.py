"""Ask one broker for ApiVersions and Metadata over a plain socket.

Importing a client library takes longer than that, and a client library hides which broker has answered.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from broker.cli.wire import ask_on
from protocol.errors import ProtocolError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse

_API_VERSIONS_VERSION = 0
_METADATA_VERSION = 4


class ProbeError(Exception):
    """The broker did not answer as a broker should. The message says why."""


class View(NamedTuple):
    """The cluster as one broker sees it."""

    cluster_id: str | None
    #: -1: the broker knows no controller, so it is not connected to a majority.
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
            versions = ask_on(connection, ApiVersionsRequest(), _API_VERSIONS_VERSION, ApiVersionsResponse)
            if versions.error_code:
                raise ProbeError(f"{host}:{port} answers ApiVersions with error {versions.error_code}")
            metadata = ask_on(
                connection,
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                _METADATA_VERSION,
                MetadataResponse,
            )
    except (OSError, ProtocolError, struct.error) as error:
        raise ProbeError(f"no broker answers at {host}:{port}: {error}") from None
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    return View(metadata.cluster_id, metadata.controller_id, brokers)
