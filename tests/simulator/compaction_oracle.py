"""What compaction may do to the logs of a group, and when that is looked at.

A group whose topic never had the policy `compact` may not differ from what was written in a single bit. In any other
group, whatever differs has to be what compaction leaves (`invariants/survivors_unchanged.py`), and each record that is
gone has to be excused (`invariants/nothing_missing.py`). Nothing here costs much before the first batch differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from broker.replication.replica import Replica
from protocol.records.batch import BatchHeader
from raft.types import Configuration
from storage.aborted_index import AbortedTransaction
from storage.journal import Journal
from storage.journal_records import Bounds
from storage.log import Log
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_journal import durable_journal
from tests.simulator.invariants.bounds_never_fall import BoundsNeverFall
from tests.simulator.invariants.expired_is_safe import ExpiredIsSafe
from tests.simulator.invariants.members_are_clean import check_handed_on, check_member
from tests.simulator.invariants.nothing_expires_early import check_expired
from tests.simulator.invariants.nothing_missing import (
    Reason,
    check_readers_of_committed,
    check_whole,
    reason_of,
)
from tests.simulator.invariants.one_record_per_key import check_clean
from tests.simulator.invariants.rewriting_is_recorded import check_recorded
from tests.simulator.invariants.same_view import check_view
from tests.simulator.invariants.stable_without_open import check_stable
from tests.simulator.invariants.survivors_unchanged import check_survivor
from tests.simulator.invariants.told_bounds_are_durable import ToldBoundsAreDurable
from tests.simulator.swaps import SwapWatch
from tests.simulator.written import Stored, Written, counted

#: Of a log that was walked as a whole: what has to change before it is walked again.
_Walked = tuple[int, int, int, int, int, int]


class CommittedValues(Protocol):
    """`invariants.one_value_per_offset`, which asks this module what a difference means."""

    def check(self, key: GroupKey, header: BatchHeader, batch: memoryview) -> None: ...


class CompactionOracle:
    def __init__(self, disks: Mapping[int, MemoryDisk]) -> None:
        self._disks = disks
        self.bounds = BoundsNeverFall()
        self.expired = ExpiredIsSafe()
        self.told = ToldBoundsAreDurable(disks)
        #: What the running nodes know of a group at this moment.
        self.bounds_now: Callable[[GroupKey], Iterable[Bounds]] = lambda key: ()
        self._written: dict[GroupKey, Written] = {}
        #: Whose topic has, or had, the policy `compact`.
        self._compacted: dict[GroupKey, None] = {}
        #: Where something was seen that is not as it was written, and how many things have expired there.
        self._rewritten: dict[GroupKey, int] = {}
        #: Batches that were found to be right, with a digest of their contents.
        self._right: dict[tuple[GroupKey, BatchHeader, bytes], None] = {}
        self._swaps = SwapWatch()
        self._walked: dict[Log, _Walked] = {}
        #: How often each log had been cut when it was looked at. What has grown since then looks like a swap.
        self._cuts: dict[Log, int] = {}
        #: By group: the index of the newest row that any replica knows to be committed, and its members.
        self._members: dict[GroupKey, tuple[int, Configuration]] = {}

    def written(self, key: GroupKey) -> Written:
        """What was committed in this group."""
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = Written()
        return found

    def begins(self, key: GroupKey) -> None:
        """From now on some replica may compact it, and for ever what it is sent may have been compacted."""
        self._compacted[key] = None

    def is_compacted(self, key: GroupKey) -> bool:
        return key in self._compacted

    def is_rewritten(self, key: GroupKey) -> bool:
        return key in self._rewritten

    # -- one batch

    def check(self, key: GroupKey, header: BatchHeader, batch: memoryview, digest: bytes) -> None:
        """A batch of some log, below what is committed, which is not as it was written. `digest`: of its contents."""
        if (key, header, digest) in self._right:
            return
        self._rewritten.setdefault(key, 0)
        written = self.written(key)
        for original, records in check_survivor(key, written, header, batch):
            for record in records:
                reason = reason_of(key, written, original, record)
                if reason in (Reason.TOMBSTONE, Reason.MARKER):
                    self._note_bounds(key, self.bounds_now(key))
                    check_expired(key, original, reason, self.bounds.highest(key))
                if reason is Reason.TOMBSTONE and self.expired.dropped(key, record):
                    self._rewritten[key] += 1
        self._right[key, header, digest] = None

    def _note_bounds(self, key: GroupKey, known: Iterable[Bounds]) -> None:
        for bounds in known:
            self.bounds.note(key, bounds)

    def leaves(self, journal: Journal, keys: Iterable[GroupKey]) -> None:
        """A node ends that has these groups: what it knew may have been acted on."""
        for key in keys:
            if key in self._compacted:
                state = journal.state(key)
                self._note_bounds(key, () if state is None or state.bounds is None else (state.bounds,))

    # -- a whole log

    def scan(self, replica: Replica, journal: Journal, values: CommittedValues) -> None:
        """Between two callbacks."""
        key, log = replica.key, replica.log
        if replica.config.is_compacted:
            self.begins(key)
        elif key not in self._compacted:
            return
        state, identity = journal.state(key), replica.group.self_id
        self.note_members(replica)
        bounds = Bounds(key) if state is None or state.bounds is None else state.bounds
        written = self.written(key)
        if replica.high_watermark == written.end_offset:
            check_stable(key, written, log.start_offset, replica.high_watermark, replica.last_stable_offset)
        self.bounds.check(
            key, identity, bounds, written.end_offset, lambda: self._durable(identity.node_id, key)
        )
        cuts, self._cuts[log] = self._cuts.get(log, log.truncation_count), log.truncation_count
        swapped_base = self._swaps.last_swapped(log)
        if swapped_base is not None:
            self._rewritten.setdefault(key, 0)
        highest = self.bounds.highest(key)
        of_members = max(bounds.mcco, highest.mtro), max(bounds.mxfo, highest.mxro)
        if key not in self._rewritten and max(of_members) <= 0:
            return
        walked = (
            self._rewritten.get(key, 0),
            bounds.mcco,
            bounds.mxfo,
            highest.mtro,
            highest.mxro,
            # What lies above could not break anything. What is above the high watermark may still be cut off.
            min(replica.high_watermark, max(*of_members, self.expired.end_offset(key))),
        )
        if swapped_base is not None or self._walked.get(log) != walked:
            self._walk(replica, bounds, values)
            self._walked[log] = walked
        if swapped_base is not None and cuts == log.truncation_count:
            check_recorded(key, swapped_base, self._durable(identity.node_id, key))

    def note_members(self, replica: Replica) -> None:
        """As this replica knows them to be committed, now."""
        group = replica.group
        known = (group.committed_configuration_index, group.committed_configuration)
        self._members[replica.key] = max(
            self._members.get(replica.key, known), known, key=lambda each: each[0]
        )

    def _durable(self, node_id: int, key: GroupKey) -> Bounds | None:
        state = durable_journal(self._disks[node_id]).get(key)
        return None if state is None else state.bounds

    def _walk(self, replica: Replica, bounds: Bounds, values: CommittedValues) -> None:
        key, start, end = replica.key, replica.log.start_offset, replica.high_watermark
        written, batches = self.written(key), stored_in(replica, end)
        for header, batch in batches:
            values.check(key, header, batch)
        check_whole(key, batches, start, end)
        check_clean(key, batches, start, bounds.mcco, bounds.mxfo)
        # One that was removed while it was away holds what it held. A learner shows first what it holds (L6).
        if replica.group.self_id in self._members[key][1].voters:
            check_member(key, written, batches, start, self.bounds.highest(key))
            check_handed_on(key, replica.log, self.bounds.highest(key).mxro)
            self.expired.check(key, written, batches, start, end)

    def check_healed(
        self,
        key: GroupKey,
        replicas: Mapping[int, Replica],
        aborted: Mapping[int, Sequence[AbortedTransaction]],
    ) -> None:
        """Once all replicas hold everything that is committed, and nobody writes any more."""
        written = self.written(key)
        for node_id, replica in replicas.items():
            batches, start = stored_in(replica, replica.high_watermark), replica.log.start_offset
            check_stable(key, written, start, replica.high_watermark, replica.last_stable_offset)
            check_readers_of_committed(key, written, batches, aborted[node_id])
            check_view(key, written, counted(written, batches, start), start, f"node {node_id}")


def stored_in(replica: Replica, end_offset: int) -> list[Stored]:
    """The batches of a replica from its log start on."""
    log = replica.log
    return [(stored.header, stored.view()) for stored in log.batches(log.start_offset, end_offset)]
