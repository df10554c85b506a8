"""Trap 2: a compacted log can end in a batch without records. A reader that plans up to the end must get there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.harness import ROOT, BrokerCluster, eventually
from tests.spark.options import FROM_START
from tests.spark.target import LIMIT_S, Target

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow
KEYS = 50


def compact(nodes: BrokerCluster, topic: str) -> list[dict[str, Any]]:
    """`varve topic compact --wait` on every replica."""
    command = [sys.executable, "-m", "broker.cli", "topic", "compact", topic, "--wait", "--format", "json"]
    command += ["--bootstrap-server", nodes.bootstrap]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    answer: list[dict[str, Any]] = json.loads(done.stdout)["replicas"]
    return answer


def offsets_left(target: Target, topic: str) -> list[int]:
    """By librdkafka, which also has to reach the end."""
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 2})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    try:
        while True:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"no end after {offsets}"
            if (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF"
                return offsets
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("retention_ms", ["86400000", "0"], ids=["deletions-kept", "deletions-gone"])
def test_a_tail_of_deletions(
    target: Target,
    nodes: BrokerCluster,
    reader: Reader,
    name: str,
    offset_fetching: str,
    retention_ms: str,
) -> None:
    target.create(
        name, cleanup_policy="compact", delete_retention_ms=retention_ms, min_cleanable_dirty_ratio="0"
    )
    target.write(name, ["kept"], key="kept")
    stream = reader.stream(subscribe=name, maxOffsetsPerTrigger="10", **FROM_START)
    producer = target.producer()
    for value in ("v", None):
        for number in range(KEYS):
            target.write(name, [value], key=f"k{number}", producer=producer)
    end = 1 + 2 * KEYS
    left = [0] if retention_ms == "0" else [0, *range(1 + KEYS, end)]

    def is_compacted() -> bool:
        # The second pass may drop the deletions whose time the first began.
        compact(nodes, name)
        return offsets_left(target, name) == left

    eventually(is_compacted, f"only {len(left)} records are left", LIMIT_S)
    assert target.ends(name) == {0: end}
    assert [row.offset for row in reader.rows(subscribe=name, minPartitions="4")] == left
    assert [row.offset for row in reader.rows(subscribe=name)] == left
    stream.available_now()
    assert [row.offset for row in stream.rows] == left
    assert stream.end_offsets == {name: {"0": end}}
    target.write(name, ["after"], key="after")
    assert [row.offset for row in stream.available_now().rows] == [*left, end]
