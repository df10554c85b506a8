"""One task's sending exactly once: a transaction that holds the task's records and the note that its batch is done.

The note is a committed offset: batch + 1, of a group that belongs to the query's task alone. Records and note are
committed together, so a task that runs again, because it died or Spark did not hear of its end, finds the note and
sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.datasource.cluster_view import QUIET, checked_client, logger
from pipeline.datasource.errors import DeliveryFailed, ReplayDiffers
from pipeline.datasource.options import WriteOptions
from pipeline.datasource.rows import Contents, records
from pipeline.datasource.sender import Sender

_TIMEOUT_S = 60.0
_RETRY_WAIT_S = 0.1
# The whole task lies within one transaction.
_TRANSACTION_TIMEOUT_MS = 300_000
# Settings that a consumer does not share with the producer would be refused or ignored, so it gets only these.
_CONNECTION = ("bootstrap.servers", "security.", "sasl.", "ssl.", "socket.", "broker.address.")


@dataclass(frozen=True, slots=True)
class TaskOfBatch:
    """Which part of which micro-batch a task writes."""

    query_id: str
    """Kept by Spark in the checkpoint: a restarted query has the same."""
    batch_id: int
    partition: int

    @property
    def name(self) -> str:
        """The transactional id, and the group of the note."""
        return f"varve-spark-{self.query_id}-{self.partition}"


def send_exactly_once(options: WriteOptions, task: TaskOfBatch, batches: Iterator[pa.RecordBatch]) -> int:
    """How many records the task's batch has; they were committed just now, or by an earlier attempt.

    Raises DeliveryFailed, after which nothing of this attempt is visible to readers of committed records, and
    ReplayDiffers.
    """
    assert options.topic is not None, "WriteOptions.parse demands a topic for exactly-once"
    sender = Sender(
        options,
        {
            "transactional.id": task.name,
            "transaction.timeout.ms": options.client_config.get(
                "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS
            ),
        },
    )
    config = {key: value for key, value in options.client_config.items() if key.startswith(_CONNECTION)}
    notes: Consumer = checked_client(
        Consumer,
        {
            **QUIET,
            **config,
            "group.id": task.name,
            "enable.auto.commit": False,
            # The note of a transaction that is being committed is waited for, not overlooked.
            "isolation.level": "read_committed",
        },
    )
    try:
        # First this: it fences an earlier attempt that still runs, and waits for the end of its transaction.
        _until_done("begin", lambda: sender.producer.init_transactions(_TIMEOUT_S))
        note = TopicPartition(options.topic, 0)
        (found,) = _until_done("read its progress", lambda: notes.committed([note], timeout=_TIMEOUT_S))
        if found.offset > task.batch_id:
            return _skipped(task, found, batches)
        return _transaction(sender, notes, note, task, batches)
    finally:
        notes.close()


def _transaction(
    sender: Sender,
    notes: Consumer,
    note: TopicPartition,
    task: TaskOfBatch,
    batches: Iterator[pa.RecordBatch],
) -> int:
    producer = sender.producer
    contents = Contents()
    producer.begin_transaction()
    try:
        for batch in batches:
            sender.send(contents.counted(records(batch, note.topic)))
        sender.flush()
        # The contents go along, to notice a replay that is not one.
        done = TopicPartition(note.topic, note.partition, task.batch_id + 1, str(contents))
        group = notes.consumer_group_metadata()
        _until_done(
            "note its progress",
            lambda: producer.send_offsets_to_transaction([done], group, _TIMEOUT_S),
        )
        _until_done("commit", lambda: producer.commit_transaction(_TIMEOUT_S))
    except BaseException as error:
        sender.discard()
        _abort(sender, error)
        raise
    return sender.sent


def _abort(sender: Sender, cause: BaseException) -> None:
    """End the transaction now rather than at its time-out, which would keep readers of committed records waiting."""
    try:
        sender.producer.abort_transaction(_TIMEOUT_S)
    except KafkaException as error:
        # The next attempt's init_transactions aborts it.
        logger().warning("the transaction could not be aborted after %r: %s", cause, error.args[0])


def _skipped(task: TaskOfBatch, found: TopicPartition, batches: Iterator[pa.RecordBatch]) -> int:
    """Raises ReplayDiffers where the batch that is done had other records."""
    replayed = Contents()
    for batch in batches:
        for _ in replayed.counted(records(batch, found.topic)):
            pass
    if found.offset == task.batch_id + 1 and found.metadata != str(replayed):
        raise ReplayDiffers(
            f"task {task.partition} of batch {task.batch_id} was committed with {found.metadata}, and is run again with"
            f" {replayed}: the query does not compute the same rows in the same partitions every time."
            " With Spark's own Kafka source, put .repartition(NUMBER, 'key') before writeStream"
        )
    logger().info("task %d of batch %d was committed before: nothing is sent", task.partition, task.batch_id)
    return replayed.records


def _until_done(what: str, step: Callable[[], Any]) -> Any:
    """The step's result; a retriable error repeats it. Raises DeliveryFailed."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return step()
        except KafkaException as error:
            reason = error.args[0]
            if not reason.retriable() or time.monotonic() > deadline:
                raise DeliveryFailed(f"the transaction could not {what}: {reason}") from error
        time.sleep(_RETRY_WAIT_S)
