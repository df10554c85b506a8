"""Partition reassignments: start them, list them, wait for them. Plans are those of kafka-reassign-partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.cli.cluster_state import Partition
from broker.cli.progress import Progress
from broker.cli.root import CommandError
from broker.cli.wire_client import WireClient, check_error, error_text
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

POLL_INTERVAL_S = 0.5


def plan_to_json(plan: Mapping[Partition, Sequence[int]]) -> str:
    """The plan as kafka-reassign-partitions writes and reads it."""
    rows = [{"topic": t, "partition": n, "replicas": list(plan[t, n])} for t, n in sorted(plan)]
    return json.dumps({"version": 1, "partitions": rows})


def read_plan(path: Path) -> dict[Partition, list[int]]:
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
        raise CommandError(f"{path}: version {document.get('version')} of plans is not supported")
    if len(plan) != len(document["partitions"]):
        raise CommandError(f"{path}: a partition is named twice")
    return plan


def alter_reassignments(
    bootstrap_server: str, targets: Mapping[Partition, Sequence[int] | None]
) -> dict[Partition, str]:
    """Start to move each partition to its target replicas. None cancels its reassignment. Returns the errors of the
    partitions that were refused."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        target = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=number, replicas=target))
    question = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    answer = WireClient(bootstrap_server).ask(question, 0, AlterPartitionReassignmentsResponse)
    check_error(answer.error_code, answer.error_message)
    return {
        (topic.name, x.partition_index): error_text(x.error_code, x.error_message)
        for topic in answer.responses
        for x in topic.partitions
        if x.error_code != ErrorCode.NONE
    }


def list_reassignments(bootstrap_server: str) -> dict[Partition, tuple[list[int], list[int]]]:
    """The reassignments under way: the node ids that are being added and removed."""
    question = ListPartitionReassignmentsRequest(topics=None)
    answer = WireClient(bootstrap_server).ask(question, 0, ListPartitionReassignmentsResponse)
    check_error(answer.error_code, answer.error_message)
    return {
        (topic.name, x.partition_index): (x.adding_replicas, x.removing_replicas)
        for topic in answer.topics
        for x in topic.partitions
    }


def wait_until_moved(bootstrap_server: str, partitions: Sequence[Partition]) -> None:
    """Wait until none of these partitions is being reassigned. On a terminal it is shown how many are done."""
    with Progress("partitions moved") as progress:
        while True:
            moving = list_reassignments(bootstrap_server)
            left = sum(partition in moving for partition in partitions)
            if not left:
                return
            progress.show(len(partitions) - left, time.monotonic(), len(partitions))
            time.sleep(POLL_INTERVAL_S)
