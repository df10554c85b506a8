"""The offsets of partitions, and what readers of committed data wait for, for `varve topic describe --offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.cli.clients import refusal
from broker.cli.root import TIMEOUT_S
from broker.cli.times import iso

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def add_offsets(admin: AdminClient, descriptions: list[dict[str, Any]], bootstrap_server: str) -> None:
    """Adds to each partition `start_offset`, `end_offset`, `last_stable_offset`, and `open_transactions`, those with
    the earliest start first."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    partitions = {(d["topic"], p["partition"]): p for d in descriptions for p in d["partitions"]}
    if not partitions:
        return
    for field, spec, isolation in (
        ("start_offset", OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
        ("last_stable_offset", OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        # Asked last, so that it is not below the other one.
        ("end_offset", OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    ):
        _ask(admin, partitions, field, spec, isolation, bootstrap_server)
    for partition in partitions.values():
        partition["open_transactions"] = []
    for topic in {topic for (topic, _), each in partitions.items() if _is_waited_for(each)}:
        _add_open_transactions(topic, partitions, bootstrap_server)


def open_transaction_lines(partition: dict[str, Any]) -> Iterator[str]:
    """For which transactions readers of committed data wait in this partition."""
    for each in partition["open_transactions"]:
        yield (
            f"open: producer {each['producer_id']}, epoch {each['producer_epoch']}, from offset"
            f" {each['start_offset']}, last write {iso(each['last_write_ms'])}"
        )


def _is_waited_for(partition: dict[str, Any]) -> bool:
    return bool(partition["last_stable_offset"] < partition["end_offset"])


def _ask(
    admin: AdminClient,
    partitions: dict[tuple[str, int], dict[str, Any]],
    field: str,
    spec: Any,
    isolation: Any,
    bootstrap_server: str,
) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
    for place, future in futures.items():
        try:
            partitions[place.topic, place.partition][field] = future.result().offset
        except KafkaException as failure:
            raise refusal(failure.args[0], bootstrap_server) from None


def _add_open_transactions(
    topic: str, partitions: dict[tuple[str, int], dict[str, Any]], bootstrap_server: str
) -> None:
    from broker.cli.txn_admin import TransactionAdmin

    admin = TransactionAdmin(bootstrap_server)
    found = admin.open_transactions(None, topic, None)
    for each in sorted(found, key=lambda transaction: transaction.start_offset):
        if (topic, each.partition) in partitions:
            partitions[topic, each.partition]["open_transactions"].append(
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "start_offset": each.start_offset,
                    "last_write_ms": each.last_timestamp_ms,
                }
            )
