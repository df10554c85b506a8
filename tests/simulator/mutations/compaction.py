"""What compaction may remove, and when (coordinated-compaction.md, sections 1 to 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.compaction import facts, worker
from broker.compaction.worker import CompactionWorker
from broker.replication.replica import Replica
from storage import log
from storage.compaction.aborted_data import AbortedData
from storage.compaction.plan import LogFacts
from storage.journal_records import UNSET
from storage.log import Log
from storage.producer_state import ProducerStates
from storage.segment_swap import SegmentBuild
from tests.simulator.disk import MemoryDisk
from tests.simulator.memory_file import MemoryFile
from tests.simulator.mutations.compaction_stories import (
    a_deposed_leader_has_compacted,
    a_reader_is_slow,
    machines_lose_power_while_segments_are_taken_in_place,
)
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import off, without_call

_EVERYWHERE = 2**62


def _with_rules(**rules: Any) -> Any:
    """The pass goes by other rules than the replica's."""

    def make(original: Any) -> Any:
        def changed(*args: Any, **kwargs: Any) -> Any:
            task = original(*args, **kwargs)
            return task._replace(rules=task.rules._replace(**rules))

        return changed

    return make


def _with_last_stable_offset_of_high_watermark(original: Any) -> Any:
    def changed(*args: Any, **kwargs: Any) -> LogFacts:
        log_facts: LogFacts = original(*args, **kwargs)
        return log_facts._replace(last_stable_offset=log_facts.high_watermark)

    return changed


def _checkpoint_first(record: Callable[..., Any]) -> object:
    async def recorded(self: CompactionWorker, replica: Replica, end_offset: int) -> None:
        await record(self, replica, end_offset)
        replica.bounds.passed(end_offset, UNSET, 0)

    return recorded


async def _not_recorded(worker: CompactionWorker, replica: Replica, end_offset: int) -> None:
    del worker, replica, end_offset


def _with_high_watermark_of_end(facts_of: Callable[..., LogFacts]) -> object:
    """Whoever has an open transaction keeps its last stable offset."""

    def changed(replica: Replica, *args: Any) -> LogFacts:
        log_facts, end_offset = facts_of(replica, *args), replica.log.end_offset
        is_open = replica.producers.first_open_offset is not None
        stable = log_facts.last_stable_offset if is_open else end_offset
        return log_facts._replace(high_watermark=end_offset, last_stable_offset=stable)

    return changed


def _snapshot_everywhere(newest: Callable[..., int]) -> object:
    def found(self: Log, *, below: int | None = None, except_for: int = -1) -> int:
        if below is None or except_for >= 0:
            return newest(self, below=below, except_for=except_for)
        return below

    return found


def _known_now(replica: Replica, snapshot_offset: int) -> ProducerStates:
    """With what is not committed, and without a snapshot."""
    states = ProducerStates()
    states.entries, states.end_offset = replica.producers.entries, snapshot_offset
    return states


#: A pass behaves as if there were one wherever it looks.
_NO_SNAPSHOT_IS_ASKED_FOR = (
    (Log, "newest_snapshot_offset", _snapshot_everywhere),
    (worker, "known_at_snapshot", lambda _: _known_now),
    (worker, "has_durable_snapshot", lambda _: lambda log, from_offset, to_offset: True),
)

MUTATIONS = (
    Mutation(
        "tombstones-below-mtro",
        "A tombstone goes only below MTRO: every member is cleaned there (section 3)",
        off((worker, "cleaning_task", _with_rules(max_tombstone_remove_offset=_EVERYWHERE))),
        mix=None,
    ),
    Mutation(
        "markers-below-mxro",
        "A transaction marker goes only below MXRO: no member has transactional data there (section 3)",
        off((worker, "cleaning_task", _with_rules(max_transaction_remove_offset=_EVERYWHERE))),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "compacted-below-last-stable-offset",
        "Only what lies wholly below the last stable offset is compacted (section 3)",
        off((worker, "log_facts", _with_last_stable_offset_of_high_watermark)),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "aborted-data-supersedes-nothing",
        "The data of aborted transactions never enters the key map (section 3)",
        off((AbortedData, "covers", lambda _: lambda self, header: False)),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "remembered-batches-stay",
        "The batches that are remembered of active producers stay, emptied (section 3)",
        off((facts, "last_offsets", lambda _: lambda states: frozenset())),
        mix=None,
    ),
    Mutation(
        "remembered-when-committed",
        "... those that were remembered at a committed offset: what is written above may be cut off (section 3)",
        off((worker, "known_at_snapshot", lambda _: _known_now)),
        story=a_deposed_leader_has_compacted,
    ),
    Mutation(
        "checkpoint-after-the-pass",
        "MCCO is raised when all segments of a pass are in place (F3)",
        off((CompactionWorker, "_record_rewriting", _checkpoint_first)),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-durable",
        "The segment that compaction has built is durable before it takes the place of others (section 3)",
        without_call(MemoryFile, "flush", SegmentBuild, "finish"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-named",
        "... and so are the names in its folder",
        without_call(MemoryDisk, "flush_directory", SegmentBuild, "finish"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "swap-decided-durably",
        "That a built segment counts is durable before the old ones go (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_directory", log, "commit_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
        bound=120,
    ),
    Mutation(
        "replaced-segments-gone",
        "Replaced segments are gone durably before the built one has its name (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_directory", log, "finish_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-in-place",
        "The built segment is durable in its place before its folder goes (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_together", log, "finish_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
        bound=120,
    ),
    Mutation(
        "delete-retention",
        "A tombstone stays for delete.retention.ms after the first pass that keeps it (section 3)",
        off((worker, "cleaning_task", _with_rules(delete_retention_ms=0))),
        story=a_reader_is_slow,
    ),
    Mutation(
        "compacted-below-a-snapshot",
        "Nothing is compacted above the newest snapshot of the producers that lies below the recorded end (section 1)",
        off(*_NO_SNAPSHOT_IS_ASKED_FOR),
        mix=("power", "kill", "isolate leader"),
        has_transactions=None,
        bound=120,
        is_slow=True,
    ),
    Mutation(
        "compacted-below-the-high-watermark",
        "Nothing is compacted above the high watermark, so MCCO lies at or below it (section 1)",
        off(
            (worker, "log_facts", _with_high_watermark_of_end),
            *_NO_SNAPSHOT_IS_ASKED_FOR,
        ),
        mix=("isolate leader", "isolate", "slow disk"),
        note="said in two places: snapshots are of committed state, and nothing is compacted above the newest",
    ),
    Mutation(
        "rewriting-recorded-first",
        "How far a pass may rewrite is recorded durably before the first segment is taken in place (broker/compaction)",
        off((CompactionWorker, "_record_rewriting", lambda _: _not_recorded)),
        mix=None,
    ),
)
