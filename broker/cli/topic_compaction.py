"""The table of `varve topic describe --compaction`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from broker.cli.compaction_state import (
    PartitionState,
    ReplicaState,
    as_dict,
    dirty_ratio,
    offset,
    partition_states,
)
from broker.cli.tables import print_table
from broker.cli.times import iso
from broker.cli.wire_client import WireClient
from protocol.messages.describe_compaction import HeldRecords

_COLUMNS = ("DIRTY-RATIO", "LAST-COMPACTED", "MCCO", "MXFO", "MTRO", "MXRO", "TOMBSTONES", "MARKERS", "STATE")
DUE = "<- due for compaction"


def add_compaction(descriptions: list[dict[str, Any]], bootstrap_server: str) -> list[PartitionState]:
    """Adds `compaction` to each partition of the descriptions, and returns what it is made of."""
    partitions = {(d["topic"], p["partition"]): p for d in descriptions for p in d["partitions"]}
    if not partitions:
        return []
    states = partition_states(WireClient(bootstrap_server), [d["topic"] for d in descriptions])
    for state in states:
        if (partition := partitions.get((state.topic, state.partition))) is not None:
            partition["compaction"] = as_dict(state)
    return [state for state in states if (state.topic, state.partition) in partitions]


def print_compaction(states: Sequence[PartitionState], *, with_replicas: bool) -> None:
    """The partitions of one topic, and below them which replicas keep tombstones and markers from going."""
    columns = ("PARTITION", *(("BROKER",) if with_replicas else ()), *_COLUMNS)
    print_table(columns, [row for state in states for row in _rows(state, with_replicas=with_replicas)])
    for state in states:
        for line in pin_lines(state):
            click.echo(line)


def pin_lines(state: PartitionState) -> Iterator[str]:
    """A line for each replica that keeps others waiting."""
    waiting = {"MTRO": "tombstones", "MXRO": "transaction markers"}
    by_line: dict[tuple[int, str, str | None], list[str]] = {}
    for pin in state.pins():
        by_line.setdefault((pin.broker, pin.reason.words, iso(pin.since_ms)), []).append(pin.bound)
    for (broker, reason, since), bounds in by_line.items():
        kept = " and ".join(waiting[bound] for bound in bounds)
        yield (
            f"Partition {state.partition}: broker {broker} keeps {kept} from going"
            f" ({', '.join(bounds)}) since {since}: {reason}"
        )


def _rows(state: PartitionState, *, with_replicas: bool) -> Iterator[list[object]]:
    if not with_replicas:
        yield [state.partition, *_cells(state.main)]
        return
    for replica in state.replicas:
        role = "*" if replica.broker == state.leader else ""
        yield [state.partition, f"{replica.broker}{role}", *_cells(replica)]


def _cells(replica: ReplicaState) -> list[object]:
    own, seen = replica.own, replica.seen
    if own is None:
        ends = (
            [None, None]
            if seen is None
            else [offset(seen.max_cleanly_compacted_offset), offset(seen.max_transaction_free_offset)]
        )
        return [None, None, *ends, None, None, None, None, replica.blocked_by.words]
    return [
        f"{dirty_ratio(own):.2f}",
        iso(own.last_compacted_ms),
        offset(own.max_cleanly_compacted_offset),
        offset(own.max_transaction_free_offset),
        offset(own.max_tombstone_remove_offset),
        offset(own.max_transaction_remove_offset),
        _held(own.tombstones),
        _held(own.markers),
        DUE if replica.is_due else ("compacting" if own.is_running else replica.blocked_by.words),
    ]


def _held(held: HeldRecords) -> str:
    if held.count < 0:
        return "some" if held.first_horizon_ms >= 0 else "0"
    return f"{held.count} ({held.size_bytes} B)" if held.count else "0"
