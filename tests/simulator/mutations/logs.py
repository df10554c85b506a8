"""What may be counted, and what recovery may believe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import broker.membership.identity
import broker.replication.log_opener
from broker.network.connection import ClientConnection
from broker.network.peers import PeerStream
from broker.replication import ranges
from protocol.records.batch import BatchHeader, iter_batches
from raft import plausibility
from raft.follower import Follower
from raft.group import Group
from raft.leader import Leader
from raft.progress import ProgressState
from raft.state import GroupState
from raft.types import AppendReply, Message, Output, ReplicaId
from storage.disk import DiskError
from storage.errors import CorruptLogError
from storage.group_commit import FlushRounds
from storage.journal import Journal
from storage.lineage import Lineage
from storage.log import Log
from storage.log_recovery import _Damage, _Recovery
from tests.simulator.disk import MemoryDisk
from tests.simulator.memory_file import MemoryFile
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.nemesis import blackouts, stranded_leaders, young_logs_after_a_clean_stop
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import all_of, off, replaced, without_call

#: Of a batch: behind base offset and length.
LEADER_EPOCH_AT = 12


def _any_term(_: Callable[..., bool]) -> Any:
    def any_term(self: Leader, commit_end: int) -> bool:
        return True

    return any_term


def _durable_at_once(set_hard_state: Callable[..., None]) -> Any:
    def entered(self: GroupState, out: Output, term: int, voted_for: ReplicaId | None) -> None:
        set_hard_state(self, out, term, voted_for)
        self.durable_term = term

    return entered


def _all_that_is_durable(answer_leader: Callable[..., None]) -> Any:
    def unverified(self: GroupState, out: Output, to: ReplicaId, reply: Message) -> None:
        if isinstance(reply, AppendReply):
            reply = reply._replace(match_end=max(reply.match_end, self.persisted_end))
        answer_leader(self, out, to, reply)

    return unverified


def _all_that_is_flushed(take: Callable[..., tuple[ReplicaId, AppendReply] | None]) -> Any:
    def unverified(self: Follower, end_index: int) -> tuple[ReplicaId, AppendReply] | None:
        acknowledgement = take(self, end_index)
        if acknowledgement is None:
            return None
        leader, reply = acknowledgement
        return leader, reply._replace(match_end=max(reply.match_end, end_index))

    return unverified


def a_follower_needs_a_batch_whose_epoch_is_corrupt(stage: Stage) -> None:
    """The epoch of a batch lies outside its checksum. It is corrupted at the leader, and only then a follower that
    was away is sent that batch; the third replica is sound and has everything."""
    stage.create_topic()
    stage.write()
    leader = stage.leader()
    away = stage.followers()[0]
    stage.cluster.kill(away)
    first = stage.write()
    for _ in range(stage.rng.randint(2, 5)):
        stage.write()
    stage.run_for(0.5)  # until the flushed ends are recorded: below them a bad batch is corruption
    log = stage.replica(leader).log
    stored = stage.rng.choice(list(log.batches(first)))
    stage.cluster.oracle.nodes.damaged(leader, stage.replica(leader).key)
    epoch_at = stored.position + LEADER_EPOCH_AT + stage.rng.randrange(4)
    stage.cluster.disks[leader].corrupt(stored.file.path, epoch_at, bytes([1 << stage.rng.randrange(7)]))
    stage.cluster.start(away)
    stage.ready(away)


def _goes_on_leading(_: Callable[..., Output]) -> Any:
    """As if the followers had never been sent what could not be written: they are asked where their logs end."""

    def append_failed(self: Group, end_index: int, now: float) -> Output:
        assert self.leading is not None
        self.end_index = end_index
        replication = self.leading.replication
        replication.truncate_batch(end_index)
        for progress in replication.followers:
            if progress.next_index > end_index or progress.state is not ProgressState.REPLICATE:
                progress.reset(replication._resume_index(progress))
        return Output()

    return append_failed


def _hears_no_more_than_it_has(append_replied: Callable[..., Output]) -> Any:
    """... and what they say of it is not believed."""

    def heard(self: Group, from_: ReplicaId, term: int, match_end: int, *rest: Any) -> Output:
        return append_replied(self, from_, term, min(match_end, self.end_index), *rest)

    return heard


def _nothing_refused(_: Callable[..., Any]) -> Any:
    def refusal(*anything: Any) -> None:
        return None

    return refusal


def _any_epoch(check: Callable[..., Any]) -> Any:
    """As if each batch had the epoch that the lineage gives it."""

    def check_whole(records: memoryview | None, start_offset: int, term: int, offset_count: int) -> Any:
        def believed(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
            for position, header in iter_batches(data):
                yield position, header._replace(leader_epoch=term)

        with replaced(ranges, "iter_batches", lambda _: believed):
            return check(records, start_offset, term, offset_count)

    return check_whole


def _no_checksum(_: Callable[..., str | None]) -> Any:
    def no_fault(self: _Recovery, *_args: object) -> None:
        return None

    return no_fault


def _torn_is_corrupt(_: Callable[..., None]) -> Any:
    def refuse(self: _Recovery, damage: _Damage) -> CorruptLogError:
        raise self._corruption(damage, damage.segment.size_bytes)

    return refuse


def _rows_first(truncate: Callable[..., None]) -> Any:
    def rows_first(self: Log, to_index: int, known_commit: int) -> None:
        if (
            known_commit <= to_index < self.end_index
            and self.lineage.offset_of_index(to_index) < self.end_offset
        ):
            self.lineage.cut(self.lineage.rows_below_index(to_index))
        truncate(self, to_index, known_commit)

    return rows_first


def _proposes_behind_rows(_: property) -> Any:
    return property(lambda self: self.leading is not None and self.leading.transfer_target is None)


def _appends_behind_rows(appended: Callable[..., Output]) -> Any:
    def behind_rows(self: Group, *args: Any) -> Output:
        persisted_end = self.persisted_end
        self.persisted_end = max(persisted_end, self.lineage.last_index + 1)
        try:
            return appended(self, *args)
        finally:
            self.persisted_end = persisted_end

    return behind_rows


def _nothing_recorded(open_log: Callable[..., Log]) -> Any:
    def opened(*args: Any, **kwargs: Any) -> Log:
        return open_log(*args, **{**kwargs, "recorded": None})

    return opened


def _tried_again(finish: Callable[..., None]) -> Any:
    def _finish_round(self: FlushRounds, error: DiskError | None, *args: Any) -> None:
        if error is None:
            finish(self, error, *args)
            return
        self._dirty.update(dict.fromkeys(self._in_flight))
        self._in_flight = {}
        self._is_in_flight = False
        self.start()

    return _finish_round


def _lost_with_the_connection(buffer_updated: Callable[[Any, int], None]) -> Any:
    """As asyncio and uvloop do with an OSError: they close the connection, and tell nobody."""

    def read(self: Any, nbytes: int) -> None:
        try:
            buffer_updated(self, nbytes)
        except DiskError as error:
            raise OSError(str(error)) from error

    return read


MUTATIONS = (
    Mutation(
        "own-term-commit",
        "Only entries of the leader's own term are committed by counting (replication.md section 6; Raft, figure 8)",
        off((Leader, "_may_commit", _any_term)),
        conditions=stranded_leaders,
    ),
    Mutation(
        "acknowledge-what-is-verified",
        "A follower acknowledges what is durable and verified against this leader (replication.md section 6)",
        off(
            (GroupState, "answer_leader", _all_that_is_durable),
            (Follower, "take_acknowledgement", _all_that_is_flushed),
            # A second line of defence: what cannot be is refused, and the link closes.
            (plausibility, "append_reply_refusal", _nothing_refused),
            (Group, "append_replied", _hears_no_more_than_it_has),
        ),
        conditions=stranded_leaders,
    ),
    Mutation(
        "answer-in-durable-terms",
        "A follower answers its leader in a term only when that term is durable here (Raft, figure 2)",
        off((GroupState, "set_hard_state", _durable_at_once)),
        ("kill",),
    ),
    Mutation(
        "sent-but-not-written",
        "A leader that cannot write what it has sent leads no longer: nothing else may stand there in its term "
        "(`Group.append_failed`)",
        off(
            (Group, "append_failed", _goes_on_leading),
            (Group, "append_replied", _hears_no_more_than_it_has),
        ),
        ("full disk",),
    ),
    Mutation(
        "checksum-at-recovery",
        "Recovery cuts at the first batch whose checksum is wrong (replication.md section 1)",
        off((_Recovery, "_checksum_fault", _no_checksum)),
        conditions=blackouts,
    ),
    Mutation(
        "partition-name-durable",
        "A new partition's folder, and the names in it, are durable before it is used (replication.md section 1)",
        all_of(
            without_call(MemoryDisk, "flush_directory", broker.replication.log_opener, "create_log"),
            without_call(MemoryDisk, "flush_together", broker.replication.log_opener, "create_logs"),
        ),
        conditions=blackouts,
    ),
    Mutation(
        "epoch-equals-lineage",
        "A batch is accepted only if its epoch equals the term of the last row before it (replication.md section 1)",
        off((ranges, "_check_whole", _any_epoch)),
        story=a_follower_needs_a_batch_whose_epoch_is_corrupt,
        note="checked by the follower; recovery cannot tell corruption above the recorded end from a torn write",
    ),
    Mutation(
        "torn-is-not-corrupt",
        "Above the recorded end a bad batch is a torn write and cut (replication.md section 2)",
        off((_Recovery, "_cut", _torn_is_corrupt)),
        conditions=blackouts,
    ),
    Mutation(
        "clean-marker-removed",
        "The clean-shutdown marker is gone, durably, before the first write after start (replication.md section 2)",
        all_of(
            without_call(MemoryDisk, "unlink", broker.membership.identity, "take_clean_marker"),
            off((_Recovery, "_ends_as_recorded", lambda _: lambda self: True)),
        ),
        conditions=young_logs_after_a_clean_stop,
        note="said in two places: a log that does not end as recorded is not believed, whatever the marker says",
    ),
    Mutation(
        "truncation-lowers-recorded-end",
        "Before a cut the journal says durably a lower recorded end (storage/README.md)",
        without_call(Journal, "append", FlushRounds, "truncate"),
        bound=250,
        of_one_log=True,
    ),
    Mutation(
        "truncation-cuts-data-first",
        "A truncation cuts the data first, then the lineage (storage/README.md)",
        off((Log, "truncate", _rows_first)),
        bound=250,
        of_one_log=True,
    ),
    Mutation(
        "truncation-is-durable",
        "A truncation is durable before anything is appended after it (replication.md section 1)",
        without_call(MemoryFile, "flush", Log, "truncate"),
        bound=250,
        of_one_log=True,
    ),
    Mutation(
        "row-before-what-is-behind-it",
        "A row is durable before anything behind it is written (replication.md section 1; in raft and in storage)",
        all_of(
            off(
                (GroupState, "can_propose", _proposes_behind_rows),
                (Group, "appended", _appends_behind_rows),
            ),
            without_call(Lineage, "flush", Log, "append_batches"),
        ),
        bound=250,
        of_one_log=True,
    ),
    Mutation(
        "corrupt-is-not-torn",
        "At or below a recorded end a bad batch is corruption and never cut (replication.md section 2; F4)",
        off((broker.replication.log_opener, "open_log", _nothing_recorded)),
        ("corrupt log", "kill", "power"),
    ),
    Mutation(
        "disk-error-ends-the-node",
        "EIO from anything, and a folder that is gone, end the process (replication.md section 2)",
        off(
            (ClientConnection, "buffer_updated", _lost_with_the_connection),
            (PeerStream, "buffer_updated", _lost_with_the_connection),
        ),
        # No write errors: a leader that goes on after one may look for ever for what it has not written.
        ("vanished folder", "read errors"),
    ),
    Mutation(
        "flush-error-is-final",
        "An error of fsync ends the process; a failed fsync is never tried again (replication.md section 2)",
        off((FlushRounds, "_finish_round", _tried_again)),
        ("flush errors", "power all"),
    ),
)
