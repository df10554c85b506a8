"""Hostile and broken clients: the documented error or a closed connection, bounded memory, one log line.

And everybody else goes on undisturbed.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import sys
import threading
from collections.abc import Iterator

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from tests.integration.harness import Broker, BrokerCluster, eventually
from tests.integration.test_wire import batch
from tests.integration.wire import Wire, produce_request

MIB = 1 << 20


@pytest.fixture
def broker(cluster: BrokerCluster) -> Broker:
    return cluster[1]


@pytest.fixture
def bystander(broker: Broker) -> Iterator[Wire]:
    """A connection from before; it must work afterwards."""
    with Wire(broker.port) as wire:
        wire.call(MetadataRequest(topics=[]), 9)
        yield wire
        wire.call(MetadataRequest(topics=[]), 9)


def header(key: int, version: int, client_id: bytes = b"\xff\xff") -> bytes:
    return struct.pack(">hhi", key, version, 1) + client_id


FRAMES = {
    "negative size": struct.pack(">i", -1),
    "size beyond the limit": struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
    "no header": struct.pack(">i", 4) + b"abcd",
    "empty": struct.pack(">i", 0),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
}
BODIES = {
    "unknown api": header(999, 0),
    "negative api": header(-1, 0),
    "version from the future": header(ApiKey.METADATA, 99),
    "negative version": header(ApiKey.METADATA, -1),
    "Produce 0": header(ApiKey.PRODUCE, 0),
    "client id beyond the frame": header(ApiKey.METADATA, 1, b"\x7f\xff"),
    "negative client id": header(ApiKey.METADATA, 1, b"\xff\x00"),
    "client id is no text": header(ApiKey.METADATA, 1, b"\x00\x02\xff\xfe") + b"\0\0\0\0",
    "array count beyond the frame": header(ApiKey.METADATA, 1) + struct.pack(">i", 0x7FFFFFFF),
    "negative array count": header(ApiKey.METADATA, 1) + struct.pack(">i", -2),
    "compact array beyond the frame": header(ApiKey.METADATA, 12) + b"\0" + b"\xff\xff\xff\xff\x0f",
    "endless varint": header(ApiKey.METADATA, 12) + b"\0" + b"\xff" * 100,
    "tags beyond the frame": header(ApiKey.METADATA, 12) + b"\xff\xff\xff\xff\x07",
    "string beyond the frame": header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 0x7FFF),
    "records beyond the frame": header(ApiKey.PRODUCE, 3)
    + struct.pack(">hhii", -1, -1, 1000, 1)
    + b"\0\1t"
    + struct.pack(">iii", 1, 0, 0x7FFFFFF0),
    "many nested arrays": header(ApiKey.FETCH, 4)
    + struct.pack(">iiiibi", -1, 0, 0, 0, 0, 0x00FFFFFF)
    + b"\0\0\0\0\0\0" * 100,
}


#: The log has one line per minute for each address and reason. Linux has all of 127.0.0.0/8, other systems one address.
HOSTS = (f"127.0.1.{number}" if sys.platform == "linux" else "" for number in itertools.count(1))


def must_be_closed(broker: Broker, data: bytes) -> None:
    host = next(HOSTS)
    with Wire(broker.port, source_host=host) as wire:
        address = wire.address
        wire.socket.sendall(data)
        assert wire.is_closed_by_broker()
    if not host:
        return
    lines = eventually(
        lambda: [line for line in broker.log_text().splitlines() if f"peer={address}" in line], "a log line"
    )
    assert len(lines) == 1, lines
    assert "bad request" in lines[0]


def drain(wire: Wire) -> None:
    """Say that there is no more, and take what comes until the other end is closed, too."""
    try:
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(65536):
            pass
    except OSError as error:
        assert not isinstance(error, TimeoutError), "the broker keeps a connection whose other end is closed"


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES.keys())
def test_a_bad_frame_closes_the_connection(broker: Broker, bystander: Wire, data: bytes) -> None:
    must_be_closed(broker, data)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_bad_request_closes_the_connection(broker: Broker, bystander: Wire, body: bytes) -> None:
    must_be_closed(broker, struct.pack(">i", len(body)) + body)


def test_an_unknown_version_of_api_versions_is_answered(broker: Broker) -> None:
    """KIP-511; the bytes are those of Apache Kafka 4.3 but for the highest version."""
    with Wire(broker.port) as wire:
        wire.send_frame(struct.pack(">hhi", 18, 127, 7) + b"\0\1x\0")
        answer = wire.receive_frame()
    assert answer[:14].hex() == "00000007" + "0023" + "00000001" + "0012" + "0000"
    assert len(answer) == 16


def test_a_cut_request_waits_and_is_forgotten_with_its_connection(broker: Broker, bystander: Wire) -> None:
    for cut in (1, 3, 4, 10, 20):
        with Wire(broker.port) as wire:
            body = wire.header(ApiKey.METADATA, 9) + encode(MetadataRequest(topics=[]), 9)
            wire.socket.sendall((struct.pack(">i", len(body)) + body)[:cut])


def test_a_request_that_comes_byte_by_byte_is_answered(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        request = MetadataRequest(topics=[])
        body = wire.header(ApiKey.METADATA, 9) + encode(request, 9)
        for byte in struct.pack(">i", len(body)) + body:
            wire.socket.sendall(bytes([byte]))
        assert len(wire.answer(request, 9).brokers) == 3


def test_announcing_much_costs_nothing(broker: Broker, bystander: Wire) -> None:
    """200 connections announce the largest frame that is allowed, and send a little of it."""
    before = broker.rss_bytes
    wires = [Wire(broker.port) for _ in range(200)]
    try:
        for wire in wires:
            wire.socket.sendall(struct.pack(">i", 100 * MIB - 1) + b"x" * 100)
        bystander.call(MetadataRequest(topics=[]), 9)
        # 64 KiB each (protocol.framing).
        assert broker.rss_bytes - before < 40 * MIB
    finally:
        for wire in wires:
            wire.socket.close()


def test_who_does_not_read_answers_is_not_read_either(cluster: BrokerCluster, topic: str) -> None:
    """Requests without end whose answers are large: the broker stops taking them in."""
    with cluster.wire_to_leader(topic) as wire:
        for _ in range(5):
            assert wire.produce(topic, batch(1, b"x" * 900_000)).error_code == 0
    leader = cluster[cluster.leader_of(topic)]
    before = leader.rss_bytes
    with Wire(leader.port, timeout_s=3) as greedy:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50 * MIB,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        body = encode(request, 4)
        with pytest.raises(TimeoutError):
            for _ in range(1_000_000):
                greedy.send_frame(greedy.header(ApiKey.FETCH, 4) + body)
        with Wire(leader.port) as other:
            assert other.call(MetadataRequest(topics=[]), 9).brokers
        assert leader.rss_bytes - before < 400 * MIB


def test_noise(broker: Broker, bystander: Wire) -> None:
    """Random bytes behind valid headers of every API: nothing but answers and closed connections."""
    rng = random.Random(11)
    for key, version in [
        (key, version) for key in (0, 1, 2, 3, 10, 18, 19, 20, 22, 23, 60) for version in range(13)
    ]:
        for _ in range(3):
            body = header(key, version) + rng.choice([b"", b"\0"]) + rng.randbytes(rng.randrange(60))
            with Wire(broker.port, timeout_s=5) as wire:
                wire.send_frame(body)
                drain(wire)
    assert broker.is_running


def test_damaged_requests(cluster: BrokerCluster, topic: str) -> None:
    """A valid Produce request with bits flipped: answers or closed connections, never the end of a node."""
    leader = cluster[cluster.leader_of(topic)]
    rng = random.Random(12)
    good = encode(produce_request(topic, batch(5)), 9)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        with Wire(leader.port, timeout_s=5) as wire:
            wire.send_frame(wire.header(0, 9) + bytes(bad))
            drain(wire)
    with Wire(leader.port) as wire:
        end = wire.produce(topic, batch()).base_offset
        assert wire.fetch(topic, 0).error_code == ErrorCode.NONE
        assert wire.fetch(topic, end).error_code == ErrorCode.NONE


def test_many_connections_come_and_go(broker: Broker, bystander: Wire) -> None:
    def visit() -> None:
        for number in range(100):
            with Wire(broker.port) as wire:
                if number % 3:
                    wire.call(MetadataRequest(topics=[]), 9)

    visitors = [threading.Thread(target=visit) for _ in range(5)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()


def test_noise_on_the_listener_of_the_peers(broker: Broker, bystander: Wire) -> None:
    rng = random.Random(13)
    for number in range(60):
        with Wire(broker.port + 1, timeout_s=5) as wire:
            data = rng.randbytes(rng.randrange(1, 80))
            wire.socket.sendall(data if number % 2 else struct.pack(">i", len(data)) + data)
            drain(wire)
    assert broker.is_running
