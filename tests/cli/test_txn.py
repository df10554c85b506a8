"""`varve txn`, and what `varve topic describe --offsets` shows of transactions, with a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.cli.conftest import Varve


@pytest.fixture
def producer(varve: Varve, ports: list[int]) -> Iterator[Producer]:
    """It has a transaction open in foo-1, on a cluster of one node."""
    assert varve("cluster", "up", "--ports", str(ports[0])).returncode == 0
    try:
        assert varve("topic", "create", "foo", "--partitions", "2").returncode == 0
        producer = Producer({"bootstrap.servers": f"localhost:{ports[0]}", "transactional.id": "writer"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("foo", b"x", partition=1)
        producer.flush(30)
        yield producer
    finally:
        varve("cluster", "down", "--delete-data", "--yes")


def test_an_open_transaction_is_shown_and_aborted(varve: Varve, producer: Producer) -> None:
    def shown(*arguments: str) -> Any:
        """The list of the answer."""
        done = varve(*arguments, "--format", "json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout).values()
        return found

    (listed,) = shown("txn", "list")
    assert (listed["transactional_id"], listed["state"]) == ("writer", "Ongoing")
    assert shown("txn", "list", "--state", "Empty") == []
    (described,) = shown("txn", "describe", "writer")
    assert described["state"] == "Ongoing"
    assert described["partitions"] == [{"topic": "foo", "partition": 1}]
    assert shown("txn", "find-hanging", "--max-transaction-timeout", "0") == []

    first, second = shown("topic", "describe", "foo", "--offsets")[0]["partitions"]
    assert (first["last_stable_offset"], first["open_transactions"]) == (0, [])
    assert (second["start_offset"], second["last_stable_offset"], second["end_offset"]) == (0, 0, 1)
    (waits_for,) = second["open_transactions"]
    assert waits_for["producer_id"] == listed["producer_id"]
    text = varve("topic", "describe", "foo", "--offsets").stdout
    assert f"open: producer {listed['producer_id']}, epoch 0, from offset 0, last write 20" in text

    place = ["--topic", "foo", "--partition", "1", "--start-offset", "0"]
    refused = varve("txn", "abort", *place)
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert varve("txn", "abort", *place, "--force").returncode == 0
    _, second = shown("topic", "describe", "foo", "--offsets")[0]["partitions"]
    assert (second["last_stable_offset"], second["end_offset"], second["open_transactions"]) == (2, 2, [])
    assert shown("txn", "describe", "writer")[0]["state"] == "Ongoing"
    producer.abort_transaction(30)
    assert shown("txn", "describe", "writer")[0]["state"] == "CompleteAbort"


def test_an_id_that_is_not_there(varve: Varve, producer: Producer) -> None:
    missing = varve("txn", "describe", "nobody")
    assert missing.returncode == 1
    assert "there is no transactional id 'nobody'" in missing.stderr
    with pytest.raises(KafkaException):
        producer.begin_transaction()
