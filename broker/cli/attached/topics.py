"""Topics of an attached cluster, by requests over plain sockets: importing a client library takes longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from broker.cli.cluster_state import ClusterState, Partition
from broker.cli.local_cluster import LocalClusterError, LocalNode
from broker.cli.processes import POLL_S
from broker.cli.wire_client import ask_at, check_error
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.schema import Message

M = TypeVar("M", bound=Message)

_CREATE_VERSION = 5
_DELETE_VERSION = 5
_FIND_COORDINATOR_VERSION = 2
_LIST_OFFSETS_VERSION = 4
_METADATA_VERSION = 8
#: A broker that hangs is asked no longer than this.
_ANSWER_S = 3.0
#: ListOffsets: instead of a time.
_EARLIEST, _LATEST = -2, -1


def create_topic(
    nodes: Sequence[LocalNode],
    name: str,
    partitions: int,
    replication_factor: int,
    settings: Mapping[str, str],
) -> None:
    """Raises CommandError if it is refused, LocalClusterError if no node answers."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    answer = _ask(nodes, CreateTopicsRequest(topics=[topic]), _CREATE_VERSION, CreateTopicsResponse)
    check_error(answer.topics[0].error_code, answer.topics[0].error_message)


def delete_topic(nodes: Sequence[LocalNode], name: str) -> None:
    """A topic that does not exist any more is none the worse. Raises as `create_topic`."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=round(_ANSWER_S * 1000))
    answer = _ask(nodes, request, _DELETE_VERSION, DeleteTopicsResponse)
    result = answer.responses[0]
    if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        check_error(result.error_code, result.error_message)


def create_offsets_topic(nodes: Sequence[LocalNode]) -> None:
    """Begin with the topic that the first question for a coordinator of a group creates. A client that hears that there
    is none waits a second before it asks again, and tests are about groups more often than not.

    Raises LocalClusterError."""
    question = FindCoordinatorRequest(key="any")
    _ask(nodes, question, _FIND_COORDINATOR_VERSION, FindCoordinatorResponse)


def _ask(nodes: Sequence[LocalNode], request: Message, version: int, response: type[M]) -> M:
    """The answer of the first of these nodes that answers. Raises LocalClusterError."""
    reason = "all are down or paused"
    for node in nodes:
        try:
            return ask_at("localhost", node.port, request, version, response)
        except (OSError, ProtocolError) as error:
            reason = str(error)
    raise LocalClusterError(f"no node answers {type(request).__name__}: {reason}")


def wait_for_leaders(
    nodes: Sequence[LocalNode], name: str, partitions: int, timeout_s: float, rest: Callable[[float], None]
) -> None:
    """Wait until each of these nodes knows a leader of every partition: no client meets one that does not. Raises
    LocalClusterError."""
    deadline = time.monotonic() + timeout_s
    pending = list(nodes)
    while pending := [node for node in pending if _known_leaders(node, name) < partitions]:
        if time.monotonic() > deadline:
            ids = [node.node_id for node in pending]
            raise LocalClusterError(f"nodes {ids} do not know the leaders of {name} after {timeout_s:g} s")
        rest(POLL_S)


def _known_leaders(node: LocalNode, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    try:
        answer = ask_at("localhost", node.port, request, _METADATA_VERSION, MetadataResponse, _ANSWER_S)
    except (OSError, ProtocolError):
        return 0
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


def offsets_of(state: ClusterState, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
    """The first offset and the next one, of each of these partitions whose leader answers."""
    by_leader: dict[int, list[Partition]] = {}
    for name in partitions:
        leader = state.partitions[name].leader
        if leader is not None:
            by_leader.setdefault(leader, []).append(name)
    found: dict[Partition, tuple[int, int]] = {}
    for leader, names in by_leader.items():
        try:
            first = _list_offsets(state.brokers[leader], names, _EARLIEST)
            following = _list_offsets(state.brokers[leader], names, _LATEST)
        except (OSError, ProtocolError):
            continue
        found |= {
            name: (first[name], following[name]) for name in names if name in first and name in following
        }
    return found


def _list_offsets(address: tuple[str, int], names: Iterable[Partition], which: int) -> dict[Partition, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, number in names:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=number, timestamp=which))
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()]
    )
    answer = ask_at(*address, request, _LIST_OFFSETS_VERSION, ListOffsetsResponse, _ANSWER_S)
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }
