"""What a record looks like on the dead-letter topic."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.producer.delivery import Failure, Record

PREFIX = "dead-letter."


def dead_letter_of(failure: Failure, topic: str, now_ms: int) -> Record:
    """The record as it was, key, value, timestamp and headers, with further headers that say why it is here.

    All of them are text. A partition that was not chosen yet is -1.
    """
    record = failure.record
    why = {
        "topic": record.topic,
        "partition": str(record.partition),
        "class": failure.error_class.value,
        "code": str(failure.code),
        "error": failure.name,
        "reason": failure.reason,
        "written": failure.written.value,
        "attempts": str(failure.attempts),
        "elapsed-ms": str(failure.elapsed_ms),
        "failed-at": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
    }
    headers = [*record.headers, *((PREFIX + name, text) for name, text in why.items())]
    return Record(topic, record.value, record.key, -1, record.timestamp_ms, headers)
