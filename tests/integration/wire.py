"""A Kafka client as small as can be: one blocking socket, one request at a time, any bytes.

For what the client libraries hide: which error code, when the answer comes, what a broken request gets.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from protocol.codec import decode, encode
from protocol.headers import RequestHeader, encode_request_header, parse_response_header
from protocol.messages import REQUESTS, RESPONSES
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records.batch import iter_batches
from protocol.records.record import Record, iter_records
from protocol.schema import Message

_RESPONSES = {request: RESPONSES[key] for key, request in REQUESTS.items()}


class Wire:
    """A connection to one broker."""

    def __init__(
        self,
        port: int,
        timeout_s: float = 20,
        host: str = "127.0.0.1",
        receive_buffer_bytes: int | None = None,
        source_host: str = "",
    ) -> None:
        """`receive_buffer_bytes`: of the socket, so that answers that are not read back up soon. `source_host`: the
        address from which it connects."""
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        try:
            if source_host:
                self.socket.bind((source_host, 0))
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """This end, as the broker sees it."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    # -- requests ----------------------------------------------------------------------------------------

    def call(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.answer(request, version)

    def send(self, request: Message, version: int) -> None:
        self.send_frame(self.header(api_key(request), version) + encode(request, version))

    def answer(self, request: Message, version: int) -> Any:
        """The next answer on the connection, which must belong to this request."""
        frame = memoryview(self.receive_frame())
        correlation_id, position = parse_response_header(api_key(request), version, frame)
        assert correlation_id == self._correlation_id
        response, end = decode(_RESPONSES[type(request)], version, frame, position)
        assert end == len(frame)
        return response

    def header(self, key: int, version: int) -> bytes:
        self._correlation_id += 1
        return encode_request_header(RequestHeader(key, version, self._correlation_id, "wire"))

    def send_frame(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            data += piece
        return bytes(data)

    def is_closed_by_broker(self) -> bool:
        """Waits (at most the time-out) for the other end to close; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # -- what tests ask most -----------------------------------------------------------------------------

    def create(
        self, topic: str, partitions: int = 1, replicas: int = 3, **configs: str
    ) -> CreatableTopicResult:
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        return self.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0]  # type: ignore[no-any-return]

    def produce(
        self,
        topic: str,
        batch: bytes | bytearray,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        timeout_ms: int = 10_000,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, batch, partition, acks, timeout_ms)
        return self.call(request, version).responses[0].partition_responses[0]  # type: ignore[no-any-return]

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        read_committed: bool = False,
        version: int = 12,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> PartitionData:
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return self.call(request, version).responses[0].partitions[0]  # type: ignore[no-any-return]

    def list_offset(
        self, topic: str, timestamp: int, *, version: int = 7, read_committed: bool = False
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        )
        request = ListOffsetsRequest(topics=[wanted], isolation_level=int(read_committed))
        return self.call(request, version).topics[0].partitions[0]  # type: ignore[no-any-return]


def api_key(request: Message) -> int:
    key = type(request).__schema__.api_key
    assert key is not None
    return key


def produce_request(
    topic: str, batch: bytes | bytearray | None, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if batch is None else memoryview(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def records_of(data: PartitionData) -> list[Record]:
    """The records of a fetched partition, all of the batches that came."""
    assert isinstance(data.records, bytes | bytearray | memoryview)
    view = memoryview(data.records)
    found: list[Record] = []
    for position, header in iter_batches(view):
        found += iter_records(view[position : position + header.size_bytes])
    return found
