"""Reassignments on their way: start, look, wait. For `varve cluster reassign` and `varve broker decommission`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from broker.cli.cluster_state import Partition
from broker.cli.root import CommandError
from broker.cli.wire_client import WireClient, check, words
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

LOOK_INTERVAL_S = 0.5


def to_json(plan: Mapping[Partition, Sequence[int]]) -> str:
    """As kafka-reassign-partitions writes and reads it."""
    rows = [{"topic": t, "partition": n, "replicas": list(plan[t, n])} for t, n in sorted(plan)]
    return json.dumps({"version": 1, "partitions": rows})


def from_file(path: Path) -> dict[Partition, list[int]]:
    """Raises CommandError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        plan = {
            (str(row["topic"]), int(row["partition"])): [int(node_id) for node_id in row["replicas"]]
            for row in document["partitions"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: not a plan: {error}") from None
    if document.get("version") != 1:
        raise CommandError(f"{path}: version {document.get('version')} of plans is not known here")
    if len(plan) != len(document["partitions"]):
        raise CommandError(f"{path}: a partition is named twice")
    return plan


def alter(bootstrap_server: str, wishes: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, str]:
    """Wish for these replicas, or with None for those before. Returns why, where it was refused."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in wishes.items():
        wish = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=number, replicas=wish))
    question = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    answer = WireClient(bootstrap_server).ask(question, 0, AlterPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, x.partition_index): words(x.error_code, x.error_message)
        for topic in answer.responses
        for x in topic.partitions
        if x.error_code != ErrorCode.NONE
    }


def ongoing(bootstrap_server: str) -> dict[Partition, tuple[list[int], list[int]]]:
    """What is on its way: the nodes that come and those that go."""
    question = ListPartitionReassignmentsRequest(topics=None)
    answer = WireClient(bootstrap_server).ask(question, 0, ListPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, x.partition_index): (x.adding_replicas, x.removing_replicas)
        for topic in answer.topics
        for x in topic.partitions
    }


def wait(bootstrap_server: str, partitions: Sequence[Partition], tell: Callable[[int], None]) -> None:
    """Until none of these is on its way. `tell` gets how many still are, whenever that changes."""
    told = -1
    while True:
        moving = ongoing(bootstrap_server)
        left = sum(partition in moving for partition in partitions)
        if left != told:
            tell(left)
            told = left
        if not left:
            return
        time.sleep(LOOK_INTERVAL_S)
