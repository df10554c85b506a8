"""What is there in the end: every record of a topic, and the offsets of a group, as tests/history describes it."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.integration.faults.client import History, as_record, new_consumer

_CALL_TIMEOUT_S = 5.0
_RETRY_BACKOFF_S = 0.1


def read_all(bootstrap: str, topic: str, partitions: int, history: History, timeout_s: float) -> None:
    """Every partition from offset 0 to its end. TimeoutError, also if a transaction stays open."""
    deadline = time.monotonic() + timeout_s
    consumer = new_consumer(bootstrap, {"enable.partition.eof": True})
    uncommitted = new_consumer(bootstrap, {"isolation.level": "read_uncommitted"})
    try:
        for partition in range(partitions):
            start = TopicPartition(topic, partition, 0)
            end = _stable_end(consumer, uncommitted, start, deadline)
            history.write(
                op="read",
                topic=topic,
                partition=partition,
                start_offset=start.offset,
                end_offset=end,
                records=_read(consumer, start, end, deadline),
            )
    finally:
        consumer.close()
        uncommitted.close()


def read_committed_offsets(
    bootstrap: str, group: str, topic: str, partitions: int, history: History, timeout_s: float
) -> None:
    """What a group has, when no transaction is open. TimeoutError."""
    deadline = time.monotonic() + timeout_s
    consumer = new_consumer(bootstrap, {"group.id": group})
    wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
    try:
        while True:
            try:
                found = consumer.committed(wanted, _CALL_TIMEOUT_S)
                errors = [str(each.error) for each in found if each.error]
            except KafkaException as error:
                errors = [str(error)]
            if not errors:
                break
            _retry(deadline, f"offsets of group {group}: {errors[0]}")
    finally:
        consumer.close()
    offsets = [[topic, each.partition, each.offset if each.offset >= 0 else None] for each in found]
    history.write(op="committed", group=group, offsets=offsets)


def _stable_end(consumer: Consumer, uncommitted: Consumer, place: TopicPartition, deadline: float) -> int:
    """The end of a partition, when no transaction is open in it."""
    while True:
        try:
            _, end = uncommitted.get_watermark_offsets(place, timeout=_CALL_TIMEOUT_S)
            _, stable_end = consumer.get_watermark_offsets(place, timeout=_CALL_TIMEOUT_S)
            if stable_end == end:
                return int(end)
            why = f"last stable offset {stable_end}, end {end}"
        except KafkaException as error:
            why = str(error)
        _retry(deadline, f"{place.topic}-{place.partition}: {why}")


def _read(consumer: Consumer, start: TopicPartition, end: int, deadline: float) -> list[list[Any]]:
    records: list[list[Any]] = []
    position = start.offset
    consumer.assign([start])
    while position < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{start.topic}-{start.partition}: came to {position} of {end}")
        for message in consumer.consume(1000, 0.2):
            error, offset = message.error(), message.offset()
            if error is None:
                record = as_record(start.topic, message)
                position = max(position, record[2] + 1)
                if record[2] < end:
                    records.append(record[2:])
            elif error.code() == KafkaError._PARTITION_EOF and offset is not None:
                position = max(position, offset)  # behind markers, which are no records
    return records


def _retry(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(why)
    time.sleep(_RETRY_BACKOFF_S)
