"""Batches of a partition as its leader has them, those of aborted and open transactions and the markers included."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.wire import ask_on
from broker.cli.wire_client import error_text
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import iter_batches

_VERSION = 11
_MAX_BYTES = 8 << 20


def read_batches(
    address: tuple[str, int], topic: str, partition: int, start_offset: int, end_offset: int
) -> Iterator[memoryview]:
    """The first one is that which holds `start_offset`, or the next one after it. Ends before `end_offset`, or where
    nothing is committed. Raises CommandError."""
    try:
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.settimeout(TIMEOUT_S)
            position, before = start_offset, -1
            while before < position < end_offset:
                before = position
                found = _fetch(connection, topic, partition, position)
                for at, header in iter_batches(found):
                    if header.base_offset >= end_offset:
                        return
                    if header.next_offset > position:
                        position = header.next_offset
                        yield found[at : at + header.size_bytes]
    except KafkaError as error:
        raise CommandError(f"{topic}-{partition}: {error}") from None
    except (OSError, ProtocolError) as error:
        raise CommandError(f"the leader of {topic}-{partition} does not answer: {error}") from None


def _fetch(connection: socket.socket, topic: str, partition: int, offset: int) -> memoryview:
    """Whole batches only; empty at the end."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_MAX_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    (answer,) = ask_on(connection, request, _VERSION, FetchResponse).responses[0].partitions
    if answer.error_code != ErrorCode.NONE:
        raise CommandError(f"{topic}-{partition} at offset {offset}: {error_text(answer.error_code, None)}")
    records = answer.records
    assert records is None or isinstance(records, bytes | memoryview)
    return memoryview(records or b"")
