"""A model of several replicas of one group: disks, links and crashes under a seed, with Raft's properties as
checks.

Each `Host` is what a broker is to a group, cut down to lists. Its disk holds two files, as replication.md
says: rows and batches; after a crash any prefix of the unsynced part of each survives, and recovery merges
what fits. Record values are unique, so that a log is known by the chain of its entries.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from raft import plausibility
from raft.group import Group
from raft.types import (
    FOUNDING_TERM,
    AppendRejection,
    AppendReply,
    Configuration,
    HardState,
    InstallSnapshot,
    InstallSnapshotReply,
    Output,
    ReplicaId,
    Role,
    Row,
    RowKind,
    Send,
    TimeoutNow,
    Timing,
    VoteReply,
    VoteRequest,
    Watermarks,
)

FIRST_WATERMARKS = Watermarks(0, -1, -1)
#: Tiny windows, and elections that a few dozen steps decide.
TIMING = Timing(
    election_timeout_s=0.3,
    campaign_spread_s=0.1,
    resend_timeout_s=0.2,
    snapshot_timeout_s=1.0,
    max_inflight_ranges=3,
    max_inflight_bytes=6,
    append_batch_bytes=350,  # four appends
)


#: What a follower says to its leader.
Answer = AppendReply | AppendRejection | InstallSnapshotReply


class ViolationError(AssertionError):
    """A property of Raft does not hold."""


class Batch(NamedTuple):
    base_offset: int
    record_count: int
    term: int
    value: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


class Entry(NamedTuple):
    """One index of the merged log. `chain` stands for the entry and all before it."""

    term: int
    row: Row | None
    batch: Batch | None
    is_first: bool
    chain: int


class Append(NamedTuple):
    term: int
    start: int
    start_offset: int
    prev_term: int
    to_index: int
    rows: tuple[Row, ...]
    batches: tuple[Batch, ...]
    commit_end: int
    log_start: int


class SendSnapshot(NamedTuple):
    term: int
    snapshot: InstallSnapshot


class Packet(NamedTuple):
    from_: ReplicaId
    to: ReplicaId
    body: Any


def replica(node_id: int, incarnation: int = 0) -> ReplicaId:
    return ReplicaId(node_id, bytes([node_id]) * 16, incarnation)


def founding_row(configuration: Configuration, term: int = FOUNDING_TERM) -> Row:
    return Row(0, term, RowKind.CONFIGURATION, configuration)


class Log:
    """Rows and batches, and the merged log that they stand for."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rows: list[Row] = []
        self.batches: list[Batch] = []

    @property
    def end_offset(self) -> int:
        return len(self.entries) - len(self.rows)

    def add_row(self, row: Row) -> None:
        if row.index != len(self.entries):
            raise ViolationError(f"row {row} at index {len(self.entries)}")
        self.rows.append(row)
        self._add(row.term, row, None, True)

    def add_batch(self, batch: Batch) -> None:
        if batch.base_offset != self.end_offset:
            raise ViolationError(f"{batch} at offset {self.end_offset}")
        if not self.rows or self.rows[-1].term != batch.term:
            raise ViolationError(f"{batch} under {self.rows[-1:]}")
        self.batches.append(batch)
        for position in range(batch.record_count):
            self._add(batch.term, None, batch, position == 0)

    def _add(self, term: int, row: Row | None, batch: Batch | None, is_first: bool) -> None:
        before = self.entries[-1].chain if self.entries else 0
        self.entries.append(Entry(term, row, batch, is_first, hash((before, term, row, batch, is_first))))

    def cut(self, end: int) -> None:
        if end < len(self.entries) and not self.entries[end].is_first:
            raise ViolationError(f"cut inside a batch: {end}")
        del self.entries[end:]
        while self.rows and self.rows[-1].index >= end:
            self.rows.pop()
        while self.batches and self.batches[-1].base_offset >= self.end_offset:
            self.batches.pop()

    def recovered(self, row_count: int, batch_count: int) -> Log:
        """What recovery makes of the first rows and batches (replication.md section 1)."""
        rows, log = self.rows[:row_count], Log()
        for batch in self.batches[:batch_count]:
            log._take_rows(rows)
            if not log.rows or log.rows[-1].term != batch.term or batch.base_offset != log.end_offset:
                return log
            log.add_batch(batch)
        log._take_rows(rows)
        return log

    def _take_rows(self, rows: Sequence[Row]) -> None:
        """Those that stand at or below the end. A row after a lost one fails its checksum chain."""
        while len(self.rows) < len(rows):
            row = rows[len(self.rows)]
            if row.index - len(self.rows) > self.end_offset:
                return
            self.add_row(row)


class Host:
    """A replica with its disk."""

    def __init__(self, cluster: Cluster, self_id: ReplicaId, row: Row | None) -> None:
        self.cluster = cluster
        self.self_id = self_id
        self.log = Log()
        if row is not None:
            self.log.add_row(row)
        self.watermarks = FIRST_WATERMARKS
        self.hard_state = self.durable_hard_state = HardState(
            FOUNDING_TERM if row is None else row.term, None
        )
        self.commit_checkpoint = 0
        self.start()

    def start(self) -> None:
        self.durable_rows = len(self.log.rows)
        self.durable_batches = len(self.log.batches)
        self.durable_hard_state = self.hard_state
        #: The flush under way: (rows, batches, end, hard state, packets that wait for it).
        self.flush: tuple[int, int, int, HardState, list[Packet]] | None = None
        self.waiting: list[Packet] = []
        #: A snapshot whose install was ordered and is not done.
        self.snapshot: InstallSnapshot | None = None
        #: The highest log start of the voters that elected it last.
        self.inherited_log_start = 0
        # What lies below the log start is committed.
        log_start = self.watermarks.log_start
        committed = log_start + sum(row.index - at < log_start for at, row in enumerate(self.log.rows))
        self.group = Group(
            self.self_id,
            self.hard_state,
            self.log.rows,
            len(self.log.entries),
            min(max(self.commit_checkpoint, committed), len(self.log.entries)),
            watermarks=self.watermarks,
            install_offset=self.watermarks.log_start,
            timing=self.cluster.timing,
            rng=random.Random(self.cluster.rng.random()),
        )

    def crash_and_restart(self) -> None:
        """Any part of what was not flushed is lost."""
        rng = self.cluster.rng
        rows = rng.randint(self.durable_rows, len(self.log.rows))
        batches = rng.randint(self.durable_batches, len(self.log.batches))
        self.log = self.log.recovered(rows, batches)
        self.hard_state = rng.choice((self.hard_state, self.durable_hard_state))
        self.commit_checkpoint = rng.randint(self.commit_checkpoint, self.group.commit_end)
        self.commit_checkpoint = min(self.commit_checkpoint, len(self.log.entries))
        self.start()

    def lose_power(self) -> None:
        """Everything that was not flushed is lost, and the known commit index."""
        self.log = self.log.recovered(self.durable_rows, self.durable_batches)
        self.hard_state = self.durable_hard_state
        self.start()

    @property
    def durable_end(self) -> int:
        return len(self.log.recovered(self.durable_rows, self.durable_batches).entries)

    # ---------------------------------------------------------------- disk

    def begin_flush(self) -> None:
        if self.flush is None:
            log = self.log
            packets, self.waiting = self.waiting, []
            self.flush = (len(log.rows), len(log.batches), len(log.entries), self.hard_state, packets)

    def finish_flush(self) -> None:
        if self.flush is None:
            return
        rows, batches, end, hard_state, packets = self.flush
        self.flush = None
        was_durable = self.durable_hard_state
        self.durable_rows = max(self.durable_rows, rows)
        self.durable_batches = max(self.durable_batches, batches)
        self.durable_hard_state = hard_state
        if hard_state != was_durable:
            self.apply(self.group.hard_state_persisted(hard_state, self.cluster.now))
        self.cluster.links.extend(packets)
        self.apply(self.group.persisted(end, self.cluster.now))

    def write(self, out: Output, append: Append | None) -> None:
        log = self.log
        if out.hard_state is not None:
            self.hard_state = out.hard_state
        if out.truncate_to is not None:
            log.cut(out.truncate_to)
            self.durable_rows = min(self.durable_rows, len(log.rows))
            self.durable_batches = min(self.durable_batches, len(log.batches))
            if self.flush is not None:  # what it covers ends at the cut
                rows, batches, end, hard_state, packets = self.flush
                end = min(end, out.truncate_to)
                self.flush = (
                    min(rows, len(log.rows)),
                    min(batches, len(log.batches)),
                    end,
                    hard_state,
                    packets,
                )
        if out.write_from is not None:
            assert append is not None
            if out.write_from != len(log.entries):
                raise ViolationError(f"write from {out.write_from}, log ends at {len(log.entries)}")
            for batch in append.batches:
                if batch.base_offset >= log.end_offset:
                    log.add_batch(batch)
        for row in out.rows:
            log.add_row(row)
        if len(log.entries) != self.group.end_index:
            raise ViolationError(f"{self.self_id}: log {len(log.entries)}, group {self.group.end_index}")

    # ---------------------------------------------------------------- orders

    def apply(self, out: Output, append: Append | None = None) -> None:
        self.write(out, append)
        if out.watermarks is not None:
            self.inherited_log_start = out.watermarks.log_start
        self.take_log_start(self.inherited_log_start)
        for send in out.sends:
            self.send(send)
        self._check_replies(out)
        packets = [Packet(self.self_id, to, message) for to, message in out.messages]
        later = [Packet(self.self_id, to, message) for to, message in out.messages_after_flush]
        packets += [
            Packet(
                self.self_id,
                snapshot.replica,
                SendSnapshot(self.group.term, snapshot._replace(replica=self.self_id)),
            )
            for snapshot in out.snapshots
        ]
        if self.cluster.early_votes:
            packets += later
        else:
            self.waiting += later
        self.cluster.links += packets
        if out.snapshot is not None:
            self.snapshot = out.snapshot
        self.cluster.check(self)
        if self.cluster.early_votes and out.hard_state is not None:
            self.apply(self.group.hard_state_persisted(out.hard_state, self.cluster.now))

    def _check_replies(self, out: Output) -> None:
        """A follower speaks to its leader of what is durable here: its term and its log start."""
        log_start = self.watermarks.log_start
        # A row proves its term as well as the journal does.
        durable_rows = self.log.rows[: self.durable_rows]
        durable_term = max([self.durable_hard_state.term, *(row.term for row in durable_rows[-1:])])
        for _, message in out.messages + out.messages_after_flush:
            if isinstance(message, Answer) and message.log_start > log_start:
                raise ViolationError(f"{message} names a log start, and {log_start} is durable")
        for _, message in [] if self.cluster.early_votes else out.messages:
            if isinstance(message, Answer) and message.term > durable_term:
                raise ViolationError(f"{message} leaves, and term {durable_term} is durable")

    def send(self, order: Send) -> None:
        rng = self.cluster.rng
        next_order: Send | None = order
        while next_order is not None:
            to, start, limit, prev_term = next_order
            entries = self.log.entries
            ends = [
                end for end in range(start + 1, limit + 1) if end == len(entries) or entries[end].is_first
            ]
            end = start if not ends else ends[-1] if self.cluster.whole_ranges else rng.choice(ends)
            part = entries[start:end]
            batches = tuple(entry.batch for entry in part if entry.batch is not None and entry.is_first)
            if batches and batches[0].base_offset < self.watermarks.log_start:
                raise ViolationError("read below the log start")
            rows = tuple(entry.row for entry in part if entry.row is not None)
            if any(row.index != end - 1 for row in rows):
                raise ViolationError("a range goes on behind a row")
            group = self.group
            log_start = self.watermarks.log_start
            offset = start - sum(1 for row in self.log.rows if row.index < start)
            body = Append(
                group.term, start, offset, prev_term, end, rows, batches, group.commit_end, log_start
            )
            self.cluster.links.append(Packet(self.self_id, to, body))
            next_order = group.sent(to, end, len(part))

    def append(self, counts: Sequence[int]) -> None:
        """The leader takes batches of so many records."""
        if not self.group.can_propose:
            return
        for count in counts:
            self.cluster.values += 1
            self.log.add_batch(Batch(self.log.end_offset, count, self.group.term, self.cluster.values))
        self.apply(self.group.appended(len(self.log.entries), 100, self.cluster.now))

    def take_log_start(self, log_start: int) -> None:
        """A replica raises its own once it has, durably and committed, all that lies below."""
        end = min(self.group.commit_end, self.group.persisted_end)
        rows = sum(1 for row in self.log.rows if row.index < end)
        if self.watermarks.log_start < log_start <= end - rows:
            self.raise_log_start(log_start)

    def raise_log_start(self, log_start: int) -> None:
        """Durably; this host forgets all that lies below at once."""
        self.watermarks = self.group.watermarks = self.watermarks._replace(log_start=log_start)
        self.group.install_offset = log_start

    def finish_install(self) -> None:
        snapshot, self.snapshot = self.snapshot, None
        if snapshot is None:
            return
        committed = self.cluster.committed
        if snapshot.end_index > len(committed):
            raise ViolationError("installed beyond the commit index")
        self.log = Log()
        for entry in committed[: snapshot.end_index]:
            if entry.row is not None:
                self.log.add_row(entry.row)
            elif entry.is_first:
                assert entry.batch is not None
                self.log.add_batch(entry.batch)
        self.durable_rows, self.durable_batches = len(self.log.rows), len(self.log.batches)
        if self.flush is not None:  # it was of the old log: only votes and packets are left of it
            self.flush = (0, 0, 0, *self.flush[3:])
        self.watermarks = self.watermarks._replace(
            log_start=max(self.watermarks.log_start, snapshot.log_start)
        )
        self.apply(self.group.snapshot_installed(snapshot, self.cluster.now))
        assert self.group.watermarks == self.watermarks

    def _refusal(self, from_: ReplicaId, body: Any) -> plausibility.Refusal | None:
        """Why a host would refuse what another one says (`raft.plausibility`)."""
        group = self.group
        if isinstance(body, Append):
            return plausibility.append_refusal(
                group, from_, body.term, body.start, body.start_offset, body.prev_term, body.to_index,
                body.rows, body.commit_end, body.log_start,
            )  # fmt: skip
        if isinstance(body, AppendReply | InstallSnapshotReply):
            return plausibility.append_reply_refusal(group, body.term, body.match_end, body.log_start)
        if isinstance(body, AppendRejection):
            return plausibility.append_rejection_refusal(group, body)
        if isinstance(body, VoteRequest):
            return plausibility.vote_request_refusal(group, body)
        if isinstance(body, VoteReply):
            return plausibility.vote_reply_refusal(group, body)
        if isinstance(body, TimeoutNow):
            return plausibility.leadership_refusal(group, from_, body.term)
        assert isinstance(body, SendSnapshot)
        log_start, rows = body.snapshot.log_start, body.snapshot.rows
        return plausibility.install_snapshot_refusal(group, from_, body.term, log_start, rows)

    def receive(self, packet: Packet) -> None:
        group, now, body, from_ = self.group, self.cluster.now, packet.body, packet.from_
        if self.cluster.refuses and (refusal := self._refusal(from_, body)) is not None:
            raise ViolationError(f"{body} of {from_} is refused: {refusal.reason}")
        if isinstance(body, Append):
            out = group.append_received(
                from_, body.term, body.start, body.prev_term, body.to_index, body.rows, body.commit_end, now
            )
            self.apply(out, body)
            if body.term == group.term:
                self.take_log_start(body.log_start)
        elif isinstance(body, AppendReply):
            self.apply(group.append_replied(from_, *body, now))
        elif isinstance(body, AppendRejection):
            self.apply(group.append_rejected(from_, body, now))
        elif isinstance(body, VoteRequest):
            self.apply(group.vote_requested(from_, body, now))
        elif isinstance(body, VoteReply):
            self.apply(group.vote_replied(from_, body, now))
        elif isinstance(body, TimeoutNow):
            self.apply(group.timeout_now(from_, body.term, now))
        elif isinstance(body, SendSnapshot):
            log_start, rows = body.snapshot.log_start, body.snapshot.rows
            self.apply(group.install_snapshot_received(from_, body.term, log_start, rows, now))
        else:
            assert isinstance(body, InstallSnapshotReply)
            self.apply(group.install_snapshot_replied(from_, body, now))


class Cluster:
    """Hosts and the packets between them. `check` runs after every output."""

    def __init__(
        self,
        seed: int,
        voters: int,
        *,
        early_votes: bool = False,
        whole_ranges: bool = False,
        host_class: type[Host] = Host,
        timing: Timing = TIMING,
        founding_term: int = FOUNDING_TERM,
        refuses: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        #: Mutation: terms and votes count as durable at once; votes and requests leave before they are.
        self.early_votes = early_votes
        #: Send what may be sent, and not a random part of it.
        self.whole_ranges = whole_ranges
        #: No message of a replica that follows the rules may be refused.
        self.refuses = refuses
        self.host_class = host_class
        self.timing = timing
        self.now = 0.0
        self.values = 0
        self.links: list[Packet] = []
        #: What is committed, for ever.
        self.committed: list[Entry] = []
        self.leader_of_term: dict[int, ReplicaId] = {}
        #: Replicas whose disk is gone. What they held counted when they acknowledged it.
        self.wiped: dict[ReplicaId, Host] = {}
        self.chain_at: dict[tuple[int, int], int] = {}
        ids = tuple(replica(node_id) for node_id in range(1, voters + 1))
        row = founding_row(Configuration(ids, ()), founding_term)
        self.hosts: dict[int, Host] = {}
        for self_id in ids:
            self.hosts[self_id.node_id] = host_class(self, self_id, row)

    def add_host(self, self_id: ReplicaId) -> Host:
        """A blank replica; replaces what the node had."""
        if self_id.node_id in self.hosts:
            self.wiped[self.hosts[self_id.node_id].self_id] = self.hosts[self_id.node_id]
        self.hosts[self_id.node_id] = host = self.host_class(self, self_id, None)
        return host

    def host_of(self, replica_id: ReplicaId) -> Host | None:
        host = self.hosts.get(replica_id.node_id)
        return host if host is not None and host.self_id == replica_id else None

    def deliver(self, position: int, *, keep: bool = False) -> None:
        packet = self.links[position] if keep else self.links.pop(position)
        host = self.host_of(packet.to)
        if host is not None:
            host.receive(packet)

    def leader(self) -> Host | None:
        """The leader of the highest term."""
        leaders = [host for host in self.hosts.values() if host.group.role is Role.LEADER]
        return max(leaders, key=lambda host: host.group.term, default=None)

    # ---------------------------------------------------------------- properties

    def check(self, host: Host) -> None:
        group, entries = host.group, host.log.entries
        group.check()
        self._log_matching(entries)
        if group.role is Role.LEADER:
            self._election_safety(host)
        if group.commit_end > 0:
            self._committed(host)

    def _log_matching(self, entries: list[Entry]) -> None:
        """Entries of equal index and term are equal, and so are all before them (Raft figure 3)."""
        for index in range(max(0, len(entries) - 8), len(entries)):
            entry = entries[index]
            if self.chain_at.setdefault((index, entry.term), entry.chain) != entry.chain:
                raise ViolationError(f"log matching: index {index}, term {entry.term}")

    def _election_safety(self, host: Host) -> None:
        """One leader per term; when elected, it holds what is committed (Raft figure 3)."""
        term = host.group.term
        if term in self.leader_of_term:
            if self.leader_of_term[term] != host.self_id:
                raise ViolationError(f"election safety: term {term}")
            return
        self.leader_of_term[term] = host.self_id
        # A later leader may have committed more, also of earlier terms, before this late election is seen.
        entries, committed = host.log.entries, self.committed
        if term != max(self.leader_of_term):
            return
        if committed and (
            len(entries) < len(committed) or entries[len(committed) - 1].chain != committed[-1].chain
        ):
            raise ViolationError(f"leader completeness: term {term}")

    def _committed(self, host: Host) -> None:
        group, entries = host.group, host.log.entries
        end = group.commit_end
        known = min(end, len(self.committed))
        if known and entries[known - 1].chain != self.committed[known - 1].chain:
            raise ViolationError(f"committed entry {known - 1} differs")
        if end <= len(self.committed):
            return
        self.committed.extend(entries[len(self.committed) : end])
        # State machine safety needs the disks: a majority of voters holds the entry durably.
        voters = group.configuration.voters
        holders = 0
        for voter in voters:
            other = self.host_of(voter) or self.wiped.get(voter)
            if other is not None and other.durable_end >= end:
                holders += other.log.entries[end - 1].chain == entries[end - 1].chain
        if holders * 2 <= len(voters):
            raise ViolationError(f"committed {end} is durable on {holders} of {len(voters)}")
