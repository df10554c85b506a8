"""Trap 1: what a broker says to an ApiVersions request of a version that it does not have.

The Java client in the connector asks with its newest version first. The answer must have the layout of version 0 to
the byte: taken for a newer one, its bytes make a throttle time of twenty minutes, in which no node is asked anything.
"""

from __future__ import annotations

import socket
import struct

import pytest

from tests.spark.target import LIMIT_S, Target

pytestmark = pytest.mark.slow
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
CORRELATION_ID = 4711


def receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        more = connection.recv(count - len(received))
        assert more, f"the connection ends after {received!r}"
        received += more
    return received


@pytest.mark.parametrize("version", [5, 99])
def test_the_answer_has_the_layout_of_version_0(target: Target, version: int) -> None:
    host, port = target.bootstrap.split(",")[0].rsplit(":", 1)
    # Request header 2 (a client id, no tagged fields), then two empty compact strings and no tagged fields.
    request = struct.pack(">hhih", API_VERSIONS, version, CORRELATION_ID, -1) + b"\0" + b"\1\1\0"
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", receive(connection, 4))
        answer = receive(connection, length)
    correlation_id, error, count, key, first, last = struct.unpack(">ihihhh", answer)
    assert (correlation_id, error, count) == (CORRELATION_ID, UNSUPPORTED_VERSION, 1)
    assert (key, first) == (API_VERSIONS, 0)
    assert 3 <= last < version
