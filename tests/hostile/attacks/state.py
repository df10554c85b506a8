"""What a node has to remember: groups, members, offsets, sessions, producers, settings. Each must be bounded."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import cycle, islice

from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import parse_response_header
from protocol.messages import RESPONSES
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterEntry, OpData
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.describe_client_quotas import EntityData
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import Message
from tests.hostile.attacks.attack import Seen
from tests.hostile.target import Target
from tests.integration.wire import api_key, produce_request

_TOPIC = "hostile-state"
#: Requests under way.
_AT_ONCE = 50
_ANSWERED_WITHIN_S = 10


def classic_groups(target: Target) -> Seen:
    """20,000 groups of the classic protocol, each with a member that sends 10 KB of metadata."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(10_000))]
    return _ask_all(
        target,
        (
            JoinGroupRequest(
                group_id=f"hostile-{number}",
                session_timeout_ms=300_000,
                rebalance_timeout_ms=1000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            )
            for number in range(20_000)
        ),
        3,
    )


def consumer_groups(target: Target) -> Seen:
    """200 groups of the consumer protocol with 100 members, each of which subscribes to 100 topics."""
    names = [f"hostile-topic-with-a-long-name-{number}" for number in range(100)]
    return _ask_all(
        target,
        (
            ConsumerGroupHeartbeatRequest(
                group_id=f"hostile-consumers-{number % 200}",
                member_id=f"member-{number}",
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=names,
                topic_partitions=[],
            )
            for number in range(20_000)
        ),
        1,
    )


def committed_offsets(target: Target) -> Seen:
    """2,000 groups that commit 100 offsets each, with 4,000 bytes of metadata."""
    target.create(_TOPIC, 100)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata="m" * 4000
        )
        for number in range(100)
    ]
    topics = [OffsetCommitRequestTopic(name=_TOPIC, partitions=partitions)]
    return _ask_all(
        target,
        (OffsetCommitRequest(group_id=f"hostile-offsets-{number}", topics=topics) for number in range(2000)),
        8,
    )


def fetch_sessions(target: Target) -> Seen:
    """2,000 fetch sessions of 1,000 partitions each, most of which do not exist."""
    target.create(_TOPIC, 100)
    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(1000)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[FetchTopic(topic=_TOPIC, partitions=partitions)]
    )
    return _ask_all(target, (request for _ in range(2000)), 12)


def producer_ids(target: Target) -> Seen:
    """100,000 records in one partition, each of another producer id."""
    target.create(_TOPIC, 100)
    rng = random.Random(5)
    leader = target.leader_of(_TOPIC)
    return _ask_all(
        target,
        (
            produce_request(
                _TOPIC,
                build_batch(
                    [NewRecord(b"k", b"v", 1)],
                    producer_id=rng.getrandbits(62),
                    producer_epoch=0,
                    base_sequence=0,
                ),
            )
            for _ in range(100_000)
        ),
        9,
        leader,
    )


def settings_of_groups(target: Target) -> Seen:
    """Settings of 40,000 groups that do not exist, in requests of 1,000."""
    setting = [AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")]

    def resources(first: int) -> list[AlterConfigsResource]:
        return [
            AlterConfigsResource(resource_type=32, resource_name=f"hostile-group-{number}", configs=setting)
            for number in range(first, first + 1000)
        ]

    return _ask_all(
        target,
        (IncrementalAlterConfigsRequest(resources=resources(first)) for first in range(0, 40_000, 1000)),
        1,
    )


def client_quotas(target: Target) -> Seen:
    """Quotas of 100,000 clients, in requests of 1,000."""

    def entries(first: int) -> list[AlterEntry]:
        return [
            AlterEntry(
                entity=[EntityData(entity_type="client-id", entity_name=f"hostile-client-{number}")],
                ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
            )
            for number in range(first, first + 1000)
        ]

    return _ask_all(
        target,
        (
            AlterClientQuotasRequest(entries=entries(first), validate_only=False)
            for first in range(0, 100_000, 1000)
        ),
        1,
    )


def _ask_all(target: Target, requests: Iterable[Message], version: int, node_id: int | None = None) -> Seen:
    """Ask them all, some at a time, on a connection to each node or to one. Counts the errors of the answers."""
    seen = Seen()
    asked = cycle(target.nodes if node_id is None else [node_id])
    left = iter(requests)
    while group := list(islice(left, _AT_ONCE)):
        with target.connect(next(asked), _ANSWERED_WITHIN_S) as wire:
            try:
                for request in group:
                    wire.send(request, version)
                for request in group:
                    frame = memoryview(wire.receive_frame())
                    _, position = parse_response_header(api_key(request), version, frame)
                    answer = decode(RESPONSES[api_key(request)], version, frame, position)[0]
                    seen.counts.update(_errors(answer))
            except TimeoutError:
                seen.counts["no answer"] += 1
            except OSError:
                seen.counts["closed"] += 1
    return seen


def _errors(value: object) -> Iterator[str]:
    """The name of every error code in an answer."""
    if isinstance(value, list):
        for each in value:
            yield from _errors(each)
    elif isinstance(value, Message):
        for name in value.__slots__:
            found = getattr(value, name)
            if name == "error_code":
                yield ErrorCode(found).name
            else:
                yield from _errors(found)
