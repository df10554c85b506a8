"""A broker that serves one fixed log, for clients that read what compaction has written."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from protocol.codec import decode, encode
from protocol.headers import parse_request_header, response_header
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.records.batch import parse_header
from protocol.schema import Message

TOPIC = "compacted"
_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS = 0, 1, 2, 3, 18
#: librdkafka takes magic 2 for granted only of a broker that also says Produce.
_SERVED = {_PRODUCE: (3, 8), _FETCH: (4, 11), _LIST_OFFSETS: (1, 5), _METADATA: (0, 8), _API_VERSIONS: (0, 2)}
_LATEST = -1


@contextmanager
def one_log_broker(
    batches: Sequence[bytes], aborted: Sequence[tuple[int, int]] = (), *, is_one_by_one: bool = False
) -> Iterator[str]:
    """The address of a broker with this log. `aborted`: (producer id, first offset) of every aborted transaction.
    With `is_one_by_one`, each answer holds one batch."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    log = _Log(port, batches, aborted, is_one_by_one)
    thread = threading.Thread(target=_accept, args=(listener, log), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=5)


def _accept(listener: socket.socket, log: _Log) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection, log), daemon=True).start()


def _serve(connection: socket.socket, log: _Log) -> None:
    with suppress(OSError, EOFError), connection:
        while True:
            frame = _read(connection, int.from_bytes(_read(connection, 4), "big"))
            header, pos = parse_request_header(memoryview(frame))
            body = log.answer(header.api_key, header.api_version, memoryview(frame), pos)
            version = header.api_version if body.is_served else 0
            answer = response_header(header.api_key, version, header.correlation_id)
            answer += encode(body.message, version)
            connection.sendall(len(answer).to_bytes(4, "big") + answer)


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        piece = connection.recv(size_bytes - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


class _Answer:
    def __init__(self, message: Message, is_served: bool = True) -> None:
        self.message = message
        self.is_served = is_served


class _Log:
    def __init__(
        self, port: int, batches: Sequence[bytes], aborted: Sequence[tuple[int, int]], is_one_by_one: bool
    ) -> None:
        self._port = port
        self._batches = [(parse_header(batch), batch) for batch in batches]
        self._aborted = aborted
        self._is_one_by_one = is_one_by_one
        self._end_offset = self._batches[-1][0].next_offset

    def answer(self, api_key: int, version: int, frame: memoryview, pos: int) -> _Answer:
        if api_key == _API_VERSIONS:
            keys = [
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in _SERVED.items()
            ]
            is_served = version <= _SERVED[_API_VERSIONS][1]
            return _Answer(ApiVersionsResponse(error_code=0 if is_served else 35, api_keys=keys), is_served)
        if api_key == _METADATA:
            return _Answer(self._metadata())
        if api_key == _LIST_OFFSETS:
            return _Answer(self._list_offsets(decode(ListOffsetsRequest, version, frame, pos)[0]))
        if api_key == _FETCH:
            return _Answer(self._fetch(decode(FetchRequest, version, frame, pos)[0]))
        raise EOFError(f"api {api_key}")

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self._port)],
            controller_id=1,
            topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0].timestamp
        offset = self._end_offset if asked == _LATEST else 0
        answer = ListOffsetsPartitionResponse(partition_index=0, offset=offset, leader_epoch=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])])

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        if not request.topics:
            return FetchResponse(responses=[])
        offset = request.topics[0].partitions[0].fetch_offset
        batches = [batch for header, batch in self._batches if header.next_offset > offset]
        if self._is_one_by_one:
            batches = batches[:1]
        partition = PartitionData(
            partition_index=0,
            high_watermark=self._end_offset,
            last_stable_offset=self._end_offset,
            log_start_offset=0,
            aborted_transactions=[
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in self._aborted
            ],
            records=b"".join(batches),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[partition])])
