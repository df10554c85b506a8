"""How the replicas of topics stand with compaction, as their brokers tell (DescribeCompaction)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.cli.replica_requests import find_replicas
from broker.cli.times import iso
from broker.cli.wire_client import WireClient, ask_at, error_text
from broker.replication.watermarks.blocked_by import BlockedBy
from protocol.errors import ErrorCode
from protocol.messages.describe_compaction import (
    CompactionMember,
    DescribeCompactionRequest,
    DescribeCompactionResponse,
    DescribeCompactionTopic,
    HeldRecords,
    PartitionCompaction,
)

#: What a leader finds itself. Anything else it was told by the replica, which may have told it a while ago.
_FOUND_BY_LEADER = {BlockedBy.OFFLINE, BlockedBy.UNREPORTED, BlockedBy.BEHIND, BlockedBy.STALE_LOG}


class Pin(NamedTuple):
    """A replica that keeps a bound of its group from rising."""

    bound: str
    """MTRO: tombstones wait. MXRO: transaction markers wait."""
    broker: int
    reason: BlockedBy
    since_ms: int


@dataclass
class ReplicaState:
    broker: int
    own: PartitionCompaction | None = None
    """What its broker says. None: it did not answer."""
    error: str | None = None
    seen: CompactionMember | None = None
    """What the leader says of it."""

    @property
    def blocked_by(self) -> BlockedBy:
        if self.seen is not None and (
            self.own is None or BlockedBy(self.seen.blocked_by) in _FOUND_BY_LEADER
        ):
            return BlockedBy(self.seen.blocked_by)
        return BlockedBy.OFFLINE if self.own is None else BlockedBy(self.own.blocked_by)

    @property
    def is_due(self) -> bool:
        return self.own is not None and self.blocked_by is BlockedBy.NOTHING and not self.own.is_running

    def pins(self) -> Iterator[Pin]:
        if self.seen is not None:
            sinces = self.seen.pins_tombstones_since_ms, self.seen.pins_markers_since_ms
            for bound, since_ms in zip(("MTRO", "MXRO"), sinces, strict=True):
                if since_ms >= 0:
                    yield Pin(bound, self.broker, self.blocked_by, since_ms)


@dataclass
class PartitionState:
    topic: str
    partition: int
    leader: int | None
    replicas: list[ReplicaState] = field(default_factory=list)

    @property
    def main(self) -> ReplicaState:
        """The leader. If it does not answer, one that does."""
        answering = [each for each in self.replicas if each.own is not None]
        return next(
            (each for each in answering if each.broker == self.leader), (answering or self.replicas)[0]
        )

    def pins(self) -> list[Pin]:
        return [pin for replica in self.replicas for pin in replica.pins()]


def dirty_ratio(own: PartitionCompaction) -> float:
    """As Kafka counts it: the dirty part of what could be compacted now."""
    total_bytes = own.clean_bytes + own.dirty_bytes
    return own.dirty_bytes / total_bytes if total_bytes else 0.0


def partition_states(
    client: WireClient, names: Iterable[str], partitions: Sequence[int] | None = None
) -> list[PartitionState]:
    """By topic and partition. Raises CommandError where there is no such topic or partition, or nobody answers."""
    placement = find_replicas(client, names, partitions)

    def ask(address: tuple[str, int], named: dict[str, list[int]]) -> DescribeCompactionResponse:
        topics = [
            DescribeCompactionTopic(name=name, partition_indexes=indexes) for name, indexes in named.items()
        ]
        return ask_at(*address, DescribeCompactionRequest(topics=topics), 0, DescribeCompactionResponse)

    answers = placement.ask_brokers(ask)
    owns = {
        (broker, topic.name, own.partition_index): own
        for broker, answer in answers.items()
        if isinstance(answer, DescribeCompactionResponse)
        for topic in answer.topics
        for own in topic.partitions
    }
    states: dict[tuple[str, int], PartitionState] = {}
    for topic, partition, broker, leader in placement.places:
        state = states.setdefault(
            (topic, partition), PartitionState(topic, partition, leader if leader >= 0 else None)
        )
        answer = answers[broker]
        if isinstance(answer, Exception):
            state.replicas.append(ReplicaState(broker, error=str(answer)))
        else:
            state.replicas.append(_replica(broker, owns[broker, topic, partition]))
    for state in states.values():
        _add_leader_view(state)
    return list(states.values())


def _replica(broker: int, own: PartitionCompaction) -> ReplicaState:
    if own.error_code != ErrorCode.NONE:
        return ReplicaState(broker, error=error_text(own.error_code, own.error_message))
    return ReplicaState(broker, own)


def _add_leader_view(state: PartitionState) -> None:
    leading = next((each.own for each in state.replicas if each.own is not None and each.own.members), None)
    for member in () if leading is None else leading.members:
        for replica in state.replicas:
            if replica.broker == member.node_id:
                replica.seen = member


# -- JSON


def offset(value: int) -> int | None:
    return None if value < 0 else value


def as_dict(state: PartitionState) -> dict[str, Any]:
    """One partition: what its leader says of itself, who pins, and each replica."""
    return {
        **_replica_dict(state.main),
        "pins": [
            {
                "bound": pin.bound.lower(),
                "broker": pin.broker,
                "reason": pin.reason.name.lower(),
                "since": iso(pin.since_ms),
            }
            for pin in state.pins()
        ],
        "replicas": [_replica_dict(replica) for replica in state.replicas],
    }


def _replica_dict(replica: ReplicaState) -> dict[str, Any]:
    own, seen = replica.own, replica.seen
    found: dict[str, Any] = {
        "broker": replica.broker,
        "blocked_by": replica.blocked_by.name.lower(),
        "is_due": replica.is_due,
    }
    if own is None:
        return {
            **found,
            "error": replica.error,
            "mcco": None if seen is None else offset(seen.max_cleanly_compacted_offset),
            "mxfo": None if seen is None else offset(seen.max_transaction_free_offset),
        }
    return {
        **found,
        "is_running": own.is_running,
        "dirty_ratio": dirty_ratio(own),
        "size_bytes": own.size_bytes,
        "clean_bytes": own.clean_bytes,
        "dirty_bytes": own.dirty_bytes,
        "last_compacted": iso(own.last_compacted_ms),
        "limit": BlockedBy(own.limit).name.lower(),
        "failure": own.failure or None,
        "retry_at": iso(own.retry_at_ms),
        "log_start_offset": own.log_start_offset,
        "log_end_offset": own.log_end_offset,
        "high_watermark": own.high_watermark,
        "last_stable_offset": own.last_stable_offset,
        "active_segment_offset": own.active_segment_offset,
        "mcco": offset(own.max_cleanly_compacted_offset),
        "mxfo": offset(own.max_transaction_free_offset),
        "mtro": offset(own.max_tombstone_remove_offset),
        "mxro": offset(own.max_transaction_remove_offset),
        "tombstones": _held_dict(own.tombstones),
        "markers": _held_dict(own.markers),
        "marker_remnants": _held_dict(own.remnants),
    }


def _held_dict(held: HeldRecords) -> dict[str, Any]:
    return {
        "count": None if held.count < 0 else held.count,
        "bytes": None if held.size_bytes < 0 else held.size_bytes,
        "first_horizon": iso(held.first_horizon_ms),
        "first_end_offset": offset(held.first_end_offset),
    }
