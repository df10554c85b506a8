"""Each invariant of what nodes do bites: on a small simulated cluster somebody breaks the promise, on the real objects,
and exactly that invariant says so."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.groups.consumer_group import ConsumerGroup
from broker.groups.shard import Shard
from broker.replication import wire
from broker.replication.replica import Replica
from broker.verification.results import Compared, NotComparedError, Outcome
from protocol import peer
from protocol.controller.topics import CreateTopics, NewTopic, TopicSetting
from protocol.group_records import OffsetCommitKey
from protocol.records.batch import iter_batches, parse_header
from protocol.records.builder import NewRecord, build_batch
from raft.group import Group as RaftGroup
from raft.leader import Leader
from raft.types import Configuration, ReplicaId, Row, RowKind
from storage.disk import DiskError
from storage.journal import Journal
from storage.journal_records import Flushed
from storage.log_types import FlushedEnd
from tests.simulator.client import Client
from tests.simulator.cluster import CLIENT_PORT, METADATA_KEY, TINY, SimulatedCluster, host_of
from tests.simulator.invariants.acknowledged_never_lost import Acknowledged
from tests.simulator.invariants.disk_failure_ends_node import PASSING_ON_S
from tests.simulator.loop import SimulationError
from tests.simulator.workload.consumers import Consumer
from tests.simulator.workload.group_requests import fetch
from tests.simulator.workload.members import Committer, Group, Member, RefusedError
from tests.simulator.workload.plan import GroupPlan

LIMIT_S = 20.0
T = TypeVar("T")


class Small:
    """A cluster of three with one partition, a few committed batches and a second term."""

    def __init__(self, settings: Sequence[TopicSetting] = (), keys: int = 0) -> None:
        """`keys`: how many keys its records have in turn; 0: none."""
        self.keys = keys
        # Tests compact for themselves, and wrongly.
        self.cluster = SimulatedCluster(random.Random(7), config=replace(TINY, cleaner_enable=False))
        self.oracle = self.cluster.oracle
        self.cluster.start()
        nodes = self.cluster.nodes
        self.wait(lambda: len(nodes) == 3 and all(node.ready.is_set() for node in nodes.values()))
        topic = NewTopic(name="t", num_partitions=1, replication_factor=3, settings=list(settings))
        self.call(1, nodes[1].controller.call, CreateTopics(topics=[topic]), lambda answer: None)
        self.wait(lambda: self.cluster.leader("t") is not None and len(self.replicas()) == 3)
        self.produce(5)
        first = self.leader
        self.cluster.kill(first.group.self_id.node_id)
        self.wait(lambda: self.cluster.leader("t") is not None)
        self.cluster.start(first.group.self_id.node_id)
        self.wait(lambda: len(self.replicas()) == 3)
        self.produce(5)
        assert self.leader.group.term > first.group.term
        self.cluster.scan()

    def wait(self, condition: Callable[[], bool]) -> None:
        self.cluster.run_until(condition, LIMIT_S)

    def call(self, node_id: int, function: Callable[..., object], *arguments: object) -> None:
        process = self.cluster.loop.process(host_of(node_id))
        assert process is not None
        process.call(function, *arguments)

    def replicas(self) -> list[Replica]:
        found = [self.cluster.replica(node_id, "t") for node_id in self.cluster.node_ids]
        return [replica for replica in found if replica is not None]

    def produce(self, batches: int) -> None:
        """... and wait until everybody knows that they are committed."""
        for number in range(batches):
            # It may be about to transfer its leadership to the preferred replica.
            self.wait(lambda: self.cluster.leader("t") is not None and self.leader.group.can_propose)
            leader = self.leader
            key = b"%d" % (number % self.keys) if self.keys else None
            batch = build_batch([NewRecord(key, b"%d" % number, 1)])
            header = next(iter_batches(memoryview(batch)))[1]
            self.call(leader.group.self_id.node_id, leader.append, header, batch)
            end_offset = leader.next_offset
            self.wait(lambda end=end_offset: all(r.high_watermark >= end for r in self.replicas()))  # type: ignore[misc]

    @property
    def leader(self) -> Replica:
        node_id = self.cluster.leader("t")
        assert node_id is not None
        replica = self.cluster.replica(node_id, "t")
        assert replica is not None
        return replica

    @property
    def follower(self) -> Replica:
        return next(replica for replica in self.replicas() if replica is not self.leader)

    def send(self, sender: Replica, to: ReplicaId, message: peer.PeerMessage) -> None:
        node_id = sender.group.self_id.node_id
        self.call(node_id, self.cluster.nodes[node_id].replicas.send, to, message)


@pytest.fixture
def small() -> Iterator[Small]:
    world = Small()
    try:
        yield world
    finally:
        world.cluster.close()


class Bites:
    """`with bites("name")`: the block breaks the invariant in that file of `invariants/`, and no other."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        assert error is not None, f"{self._name} has noticed nothing"
        if isinstance(error, SimulationError) and error.__cause__ is not None:
            error = error.__cause__  # it was noticed in a callback of the loop
        if not isinstance(error, AssertionError):
            return False
        modules = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
        found = [path.stem for path in modules if path.parent.name == "invariants"]
        assert found and found[-1] == self._name, f"{found} instead of {self._name}: {error}"
        return True


bites = Bites


def test_an_untouched_cluster_breaks_nothing(small: Small) -> None:
    small.produce(3)
    small.cluster.scan()
    for replica in small.replicas():
        small.oracle.role_changed(replica)
        small.oracle.committed(replica.group.self_id.node_id, replica)


def vote(replica: Replica, term: int) -> peer.VoteReply:
    return peer.VoteReply(
        topic_id=replica.key.topic_id,
        partition=replica.partition,
        incarnation=replica.group.self_id.incarnation,
        term=term,
        granted=True,
        pre_vote=False,
        log_start=0,
        mtro=0,
        mxro=0,
    )


# -- disks ---------------------------------------------------------------------------------------------------


def test_a_node_that_lives_on_after_its_disk_failed(small: Small) -> None:
    disk, log = small.cluster.disks[1], small.replicas()[0].log
    disk.faults.read_error_rate = 1.0

    def swallow() -> None:
        with suppress(DiskError):
            list(log.batches(0))

    small.call(1, swallow)
    disk.mend()
    small.cluster.scan()  # it may be about to end
    small.cluster.loop.take_time(0.002)  # others are at work meanwhile (seed 433031750138)
    small.cluster.scan()
    small.cluster.loop.run_for(PASSING_ON_S)
    with bites("disk_failure_ends_node"):
        small.cluster.scan()


def test_a_node_that_ends_as_its_disk_failed(small: Small) -> None:
    small.cluster.disks[1].faults.read_error_rate = 1.0
    process = small.cluster.process(1)
    log = small.replicas()[0].log
    small.cluster.loop.call_soon(lambda: list(log.batches(0)), context=process.new_context())
    small.cluster.loop.run_for(0.001)
    assert not process.alive
    small.cluster.scan()


# -- elections -----------------------------------------------------------------------------------------------


def usurp(group: RaftGroup) -> None:
    """It leads, and nobody has voted for it."""
    group.following, group.leading = None, Leader(group)


def test_two_leaders_in_one_term(small: Small) -> None:
    replica, rival = small.follower, small.follower.group
    usurp(rival)
    with bites("one_leader_per_term"):
        small.oracle.role_changed(replica)


def test_two_votes_in_one_term(small: Small) -> None:
    voter = small.follower
    one, other = (replica.group.self_id for replica in small.replicas() if replica is not voter)
    small.send(voter, one, vote(voter, 99))
    small.send(voter, one, vote(voter, 99))
    with bites("one_vote_per_term"):
        small.send(voter, other, vote(voter, 99))


def test_two_votes_with_a_restart_in_between(small: Small) -> None:
    voter = small.follower
    node_id = voter.group.self_id.node_id
    one, other = (replica.group.self_id for replica in small.replicas() if replica is not voter)
    small.send(voter, one, vote(voter, 99))
    small.cluster.cut_power(node_id)
    small.cluster.start(node_id)
    small.wait(lambda: small.cluster.replica(node_id, "t") is not None)
    again = small.cluster.replica(node_id, "t")
    assert again is not None and again is not voter
    with bites("one_vote_per_term"):
        small.send(again, other, vote(again, 99))


def test_a_vote_of_somebody_who_is_no_member(small: Small) -> None:
    voter = small.follower
    voter.group.self_id = voter.group.self_id._replace(incarnation=1)
    with bites("one_vote_per_term"):
        small.send(voter, small.leader.group.self_id, vote(voter, 99))


def test_a_leader_that_nobody_voted_for(small: Small) -> None:
    usurper = small.follower
    usurper.group.term += 1
    usurp(usurper.group)
    with bites("one_vote_per_term"):
        small.oracle.role_changed(usurper)


def test_a_vote_of_a_lost_identity_does_not_count(small: Small) -> None:
    """The node voted, and as somebody else than the configuration names."""
    replica, winner = small.follower, small.follower.group
    stranger = small.leader.group.self_id._replace(incarnation=1)
    small.oracle.nodes.votes.voted(replica.key, stranger, winner.term + 1, winner.self_id[:2])
    winner.term += 1
    usurp(winner)
    with bites("one_vote_per_term"):
        small.oracle.role_changed(replica)


@pytest.mark.parametrize("what", ["row", "batch"])
def test_a_leader_without_a_committed_entry(small: Small, what: str) -> None:
    """Both are committed and unknown to any client: a row of a term, and a batch whose producer had no answer."""
    leader = small.leader
    entries = small.oracle.nodes.completeness._committed[leader.key]
    rows = {row.index for row in leader.log.lineage.rows}
    index = max(index for index in entries if (index in rows) == (what == "row"))
    term, committed_in = entries[index]
    entries[index] = (term + 1, committed_in)
    with bites("leader_completeness"):
        small.oracle.role_changed(leader)


def test_a_leader_whose_log_is_shorter_than_what_is_committed(small: Small) -> None:
    leader = small.leader
    entries, term = small.oracle.nodes.completeness._committed[leader.key], leader.group.term
    entries[leader.log.end_index] = (term + 1, term + 1)
    small.oracle.role_changed(leader)  # a later leader's entry: this one is deposed and does not know it
    entries[leader.log.end_index] = (term, term)
    with bites("leader_completeness"):
        small.oracle.role_changed(leader)


def test_a_leader_without_an_acknowledged_batch(small: Small) -> None:
    """One that is deposed, and has not heard of that, owes nothing of what its successor took."""
    leader = small.leader
    offset, values = leader.log.end_offset, small.oracle.values.values
    values[leader.key, offset] = values[leader.key, offset - 1]
    promise = Acknowledged(*range(len(Acknowledged._fields)))
    small.oracle.acknowledged.batches.setdefault(leader.key, {})[offset] = promise
    with bites("acknowledged_never_lost"):
        small.oracle.role_changed(leader)
    values[leader.key, offset] = values[leader.key, offset]._replace(leader_epoch=leader.group.term + 1)
    small.oracle.role_changed(leader)


# -- logs ----------------------------------------------------------------------------------------------------


def test_an_entry_that_differs_between_two_logs(small: Small) -> None:
    follower = small.follower
    *_, last = follower.log.batches(0)
    small.oracle.matching._compared.clear()
    file = small.cluster.disks[follower.group.self_id.node_id].open(last.file.path)
    file.write_at(last.position + 17, b"\0\0\0\0")  # the CRC, by which batches are compared
    with bites("log_matching"):
        small.cluster.scan()


def test_a_batch_of_another_epoch_than_its_row(small: Small) -> None:
    """The equality rule: the last row is gone from disk and memory, the batches behind it are not."""
    log = small.follower.log
    log.lineage.cut(len(log.lineage.rows) - 1)
    small.oracle.nodes.lineages._walked.clear()
    small.follower.group.lineage.truncate(log.lineage.rows[-1].index + 1)
    with bites("lineage_agrees"):
        small.oracle.nodes.lineages.scan(small.follower)


def test_a_row_that_is_not_chained(small: Small) -> None:
    log = small.follower.log
    disk = small.cluster.disks[small.follower.group.self_id.node_id]
    file = disk.open(f"{log.directory}/lineage")
    file.write_at(file.size - 1, b"\xff")
    small.oracle.nodes.lineages._walked.clear()
    with bites("lineage_agrees"):
        small.cluster.scan()


def test_a_hole_between_two_batches(small: Small) -> None:
    leader = small.leader
    *_, last = leader.log.batches(0)
    file = small.cluster.disks[leader.group.self_id.node_id].open(last.file.path)
    file.write_at(last.position, (last.header.base_offset + 3).to_bytes(8, "big"))
    small.oracle.nodes.lineages._walked.clear()
    with bites("lineage_agrees"):
        small.oracle.nodes.lineages.scan(leader)


def test_a_batch_that_fails_its_crc(small: Small) -> None:
    follower = small.follower
    *_, last = follower.log.batches(0)
    file = small.cluster.disks[follower.group.self_id.node_id].open(last.file.path)
    file.write_at(last.position + last.header.size_bytes - 1, b"\xff")
    small.oracle.nodes.lineages._walked.clear()
    with bites("lineage_agrees"):
        small.oracle.nodes.lineages.scan(follower)


def test_two_servers_change_at_once(small: Small) -> None:
    leader = small.leader
    voters = leader.group.configuration.voters
    row = Row(leader.log.end_index, leader.group.term, RowKind.CONFIGURATION, Configuration(voters[:1], ()))
    leader.log.append_row(row.term, row.kind, wire.row_payload(row))
    with bites("lineage_agrees"):
        small.oracle.nodes.lineages.scan(leader)


# -- what never goes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["term", "commit_end"])
def test_a_term_or_a_commit_index_that_falls(small: Small, field: str) -> None:
    follower, node = small.follower, small.cluster.nodes[small.follower.group.self_id.node_id]
    setattr(follower.group, field, getattr(follower.group, field) - 1)
    with bites("never_back"):
        small.oracle.nodes.scan(follower, node.journal)


def test_a_high_watermark_that_falls(small: Small) -> None:
    small.follower.high_watermark -= 1
    with bites("never_back"):
        small.cluster.scan()


def test_a_committed_entry_that_is_cut(small: Small) -> None:
    """By the log itself: who asks for it says that nothing is committed."""
    log = small.follower.log
    log.truncate(log.end_index - 1, 0)
    with bites("never_back"):
        small.oracle.nodes.scan(small.follower, small.cluster.nodes[1].journal)


def test_a_truncation_below_the_commit_index(small: Small) -> None:
    follower = small.follower
    node_id = follower.group.self_id.node_id
    with bites("never_back"):
        small.call(node_id, small.cluster.nodes[node_id].replicas.truncate, follower, 3, 0)


def test_a_log_start_that_falls_and_one_above_the_high_watermark(small: Small) -> None:
    follower = small.follower
    follower.log.start_offset = follower.high_watermark + 1
    with bites("log_start_monotone"):
        small.oracle.nodes.log_starts.check(follower)
    follower.log.start_offset = 5
    small.oracle.nodes.log_starts.check(follower)
    follower.log.start_offset = 4
    with bites("log_start_monotone"):
        small.oracle.nodes.log_starts.check(follower)


def test_a_deletion_that_nobody_asked_for(small: Small) -> None:
    follower = small.follower
    small.oracle.deletions.asked(follower.key, 4)
    follower.log.set_start_offset(5)
    with bites("deleted_as_asked"):
        small.cluster.scan()


def test_a_transaction_whose_records_are_deleted_is_open(small: Small) -> None:
    """Seed 605280947560: the last stable offset was the high watermark again, and no marker had come."""
    leader = small.leader
    batch = build_batch(
        [NewRecord(None, b"v", 1)], producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    end_offset = leader.next_offset + 1
    small.call(leader.group.self_id.node_id, leader.append, parse_header(batch), batch)
    small.wait(lambda: all(replica.high_watermark == end_offset for replica in small.replicas()))
    for replica in small.replicas():
        replica.log_start.committed = end_offset  # of a leader that has deleted them
        assert replica.last_stable_offset == end_offset
    assert not small.cluster.have_no_open_transactions()


def test_a_log_start_that_a_restart_forgets(small: Small) -> None:
    """It is raised in memory and not recorded."""
    follower = small.follower
    node_id = follower.group.self_id.node_id
    small.oracle.deletions.asked(follower.key, 5)
    follower.log.set_start_offset(5)
    small.cluster.scan()
    small.cluster.kill(node_id)
    with bites("log_start_monotone"):
        small.cluster.start(node_id)
        small.wait(lambda: small.cluster.replica(node_id, "t") is not None)


def test_an_answer_in_a_term_that_is_not_durable(small: Small) -> None:
    follower, leader = small.follower, small.leader.group.self_id
    small.send(follower, leader, rejection(follower, follower.group.term))
    with bites("answered_term_is_durable"):
        small.send(follower, leader, rejection(follower, follower.group.term + 1))


def rejection(replica: Replica, term: int) -> peer.AppendRejection:
    end_index = replica.group.end_index
    return peer.AppendRejection(
        topic_id=replica.key.topic_id,
        partition=replica.partition,
        incarnation=replica.group.self_id.incarnation,
        term=term,
        start_index=end_index,
        hint_index=end_index,
        hint_term=replica.group.last_term,
        log_start=0,
    )


def test_a_log_start_that_is_named_before_it_is_durable(small: Small) -> None:
    """By an answer to a snapshot install: its leader may show it as what a majority holds."""
    follower, leader = small.follower, small.leader.group.self_id
    small.send(follower, leader, installed(follower, 0))
    with bites("named_log_start_is_durable"):
        small.send(follower, leader, installed(follower, 5))


def installed(replica: Replica, log_start: int) -> peer.InstallSnapshotReply:
    return peer.InstallSnapshotReply(
        topic_id=replica.key.topic_id,
        partition=replica.partition,
        incarnation=replica.group.self_id.incarnation,
        term=replica.group.term,
        match_end=replica.group.persisted_end,
        log_start=log_start,
    )


# -- disks ---------------------------------------------------------------------------------------------------


def test_an_acknowledgement_before_its_flush(small: Small) -> None:
    """Of one follower only, and no power is lost."""
    follower = small.follower
    faults = small.cluster.disks[follower.group.self_id.node_id].faults
    faults.done_before_durable = True
    faults.slow_factor = 10_000.0
    with bites("acknowledged_is_durable"):
        small.produce(1)


def test_a_restart_that_forgets_what_was_acknowledged(small: Small) -> None:
    """The last batch is gone, and the journal agrees that it never was durable: a good log, and a short one."""
    follower = small.follower
    node_id = follower.group.self_id.node_id
    disk, end = small.cluster.disks[node_id], follower.log.end
    *_, last = follower.log.batches(0)
    small.cluster.kill(node_id)
    file = disk.open(last.file.path)
    file.truncate(last.position)
    file.flush()
    journal = Journal.open(disk)
    journal.append(Flushed(follower.key, FlushedEnd(end.end_index - 1, end.row_count)))
    journal.close()
    with bites("acknowledged_is_durable"):
        small.cluster.start(node_id)
        small.wait(lambda: small.cluster.replica(node_id, "t") is not None)


def test_a_commit_that_is_durable_at_the_leader_only(small: Small) -> None:
    """The leader believes its followers have what they do not."""
    leader = small.leader
    for replica in small.replicas():
        if replica is not leader:
            small.cluster.pause(replica.group.self_id.node_id)
    batch = build_batch([NewRecord(None, b"x", 1)])
    header = next(iter_batches(memoryview(batch)))[1]
    node_id = leader.group.self_id.node_id
    small.call(node_id, leader.append, header, batch)
    end_index = leader.group.end_index + 1
    small.wait(lambda: leader.group.persisted_end == end_index)
    follower = small.follower.group.self_id
    reply = (follower, leader.group.term, end_index, 0, leader.host.now())
    with bites("committed_is_durable"):
        small.call(node_id, lambda: leader.driver.carry_out(leader.group.append_replied(*reply)))


def _told(small: Small, offset: int, required: int) -> None:
    """A producer hears that the last batch is safe."""
    leader = small.leader
    small.oracle.nodes.in_sync.told(leader.key, "t", offset, leader.group.term, required)


def test_an_answer_before_all_in_sync_replicas_have_it(small: Small) -> None:
    """A majority has it, and the third disk is slow."""
    leader, slow = small.leader, small.follower.group.self_id.node_id
    small.cluster.disks[slow].faults.slow_factor = 1e6
    batch = build_batch([NewRecord(None, b"x", 1)])
    header = next(iter_batches(memoryview(batch)))[1]
    offset, end_offset = leader.next_offset, leader.next_offset + 1
    small.call(leader.group.self_id.node_id, leader.append, header, batch)
    small.wait(
        lambda: (
            leader.high_watermark == end_offset and leader.group.persisted_end > leader.group.commit_end - 1
        )
    )
    _told(small, offset, 2)
    with bites("in_sync_is_durable"):
        _told(small, offset, 3)
    small.cluster.disks[slow].mend()
    small.wait(
        lambda: all(replica.group.persisted_end == leader.group.end_index for replica in small.replicas())
    )
    _told(small, offset, 3)


def test_a_replica_that_has_lost_its_disk_since_may_have_been_in_sync(small: Small) -> None:
    node_id = small.follower.group.self_id.node_id
    small.cluster.kill(node_id)
    small.cluster.damage.note(node_id, is_lost=True)
    small.cluster.wipe(node_id)
    _told(small, small.leader.high_watermark - 1, 3)


def test_a_commit_by_counting_entries_of_an_older_term(small: Small) -> None:
    """Figure 8: what an earlier leader appended is committed only together with an entry of the own term."""
    leader = small.leader
    small.oracle.nodes.committed_durable._counted.clear()
    leader.group.commit_end = leader.log.lineage.rows[-1].index
    leader.high_watermark = leader.log.lineage.offset_of_index(leader.group.commit_end)
    with bites("committed_is_durable"):
        small.oracle.nodes.committed_durable.committed(leader)


def test_a_follower_that_commits_by_itself(small: Small) -> None:
    follower = small.follower
    small.oracle.nodes.committed_durable._counted[follower.key] -= 1
    with bites("committed_is_durable"):
        small.oracle.nodes.commit_moved(follower)


@pytest.mark.parametrize("topic", ["t", "__cluster_metadata"])
def test_a_recorded_end_above_what_is_durable(small: Small, topic: str) -> None:
    node_id = small.follower.group.self_id.node_id
    node = small.cluster.nodes[node_id]
    replica = small.follower if topic == "t" else node.replicas.by_key[METADATA_KEY]
    end = replica.log.flushed_end
    node.journal.append(Flushed(replica.key, FlushedEnd(end.end_index + 1, end.row_count)))
    with bites("recorded_is_durable"):
        small.cluster.scan()


def test_an_identity_that_is_given_up_without_need(small: Small) -> None:
    """A restart that takes a good log for a bad one."""
    follower = small.follower
    node_id = follower.group.self_id.node_id
    replicas = small.cluster.nodes[node_id].replicas
    small.call(node_id, replicas._logs._become_another, follower.key)
    small.cluster.kill(node_id)
    with bites("identity_kept"):
        small.cluster.start(node_id)
        small.wait(lambda: small.cluster.replica(node_id, "t") is not None)


def test_a_wiped_node_is_somebody_else(small: Small) -> None:
    """That is no violation: its promises went with the disk."""
    node_id = small.follower.group.self_id.node_id
    small.cluster.cut_power(node_id)
    small.cluster.wipe(node_id)
    small.cluster.start(node_id)
    small.wait(lambda: small.cluster.replica(node_id, "t") is not None)
    small.produce(3)
    small.cluster.scan()


# -- groups --------------------------------------------------------------------------------------------------


def as_client(small: Small, work: Coroutine[Any, Any, T]) -> T:
    loop = small.cluster.loop
    process = loop.process("client") or loop.start_process("client")
    task = process.create_task(work)
    small.wait(task.done)
    return task.result()


def new_client(small: Small) -> Client:
    nodes = [(host_of(node_id), CLIENT_PORT) for node_id in small.cluster.node_ids]
    return Client(small.cluster.network.of("client"), nodes)


def shard_of(small: Small, group_id: str) -> Shard:
    """Where it is coordinated."""
    for node in small.cluster.nodes.values():
        led = node.coordinators.groups._led.get(node.coordinators.offsets_topic.partition_of(group_id))
        if led is not None:
            return led.shard
    raise AssertionError("nobody coordinates it")


def test_a_commit_that_gets_lost(small: Small) -> None:
    client, oracle = new_client(small), small.oracle
    plan = GroupPlan("g", members=0, is_assigned=False, session_timeout_ms=300, commits=5, seed=1)
    as_client(small, Committer(client, oracle, "g", plan, ("t", 0), seed=1).run())
    (place,) = oracle.offsets.places

    async def audit() -> None:
        connection = await client.coordinator(place.group)
        assert connection is not None
        assert (await fetch(connection, oracle, place.group, [("t", 0)]))[0] == 0

    as_client(small, audit())
    key = OffsetCommitKey(group=place.group, topic="t", partition=0)
    shard_of(small, place.group).offsets.replay(key, None)
    with bites("offsets_never_back"):
        as_client(small, audit())


def test_a_generation_that_is_given_out_twice(small: Small) -> None:
    plan = GroupPlan("g", members=2, is_assigned=False, session_timeout_ms=300, commits=5, seed=1)
    group = Group(plan, [("t", 0)])

    async def join(name: str) -> None:
        member = Member(new_client(small), small.oracle, group, name, seed=1)
        while True:
            try:
                assert await member._join() == [("t", 0)]
                return
            except RefusedError:  # the topic of offsets is being created
                await asyncio.sleep(0.1)

    as_client(small, join("first"))
    del shard_of(small, "g").groups["g"]
    with bites("one_owner"):
        as_client(small, join("second"))


def test_a_partition_that_is_given_out_twice(small: Small) -> None:
    plan = GroupPlan("g", members=2, is_assigned=True, session_timeout_ms=300, commits=5, seed=1)
    group = Group(plan, [("t", 0)])

    async def join(name: str) -> None:
        consumer = Consumer(new_client(small), small.oracle, group, name, seed=1)
        while not consumer._offsets:
            await consumer._heartbeat()
            await asyncio.sleep(0.1)

    as_client(small, join("first"))
    del shard_of(small, "g").groups["g"]
    with bites("one_worker"):
        as_client(small, join("second"))


def test_a_member_takes_nothing_from_an_answer_that_comes_behind_its_session(small: Small) -> None:
    """Else the simulator finds two workers where the coordinator has rightly put the first one out."""
    plan = GroupPlan("g", members=2, is_assigned=True, session_timeout_ms=300, commits=5, seed=1)
    group, client = Group(plan, [("t", 0)]), new_client(small)
    first, second = (Consumer(client, small.oracle, group, name, seed=1) for name in ("first", "second"))

    async def come_and_go() -> None:
        while not first._offsets:
            await first._heartbeat()
            await asyncio.sleep(0.1)
        first._give_up(set(first._offsets))
        await first._heartbeat(leaves=True)

    as_client(small, come_and_go())
    network = small.cluster.network
    mends = [network.stall(host_of(node_id), "client") for node_id in small.cluster.node_ids]
    process = small.cluster.loop.process("client")
    assert process is not None
    joining = process.create_task(second._heartbeat())
    coordinated = shard_of(small, "g").groups["g"]
    assert isinstance(coordinated, ConsumerGroup)
    small.wait(lambda: len(coordinated.members) == 1)
    small.wait(lambda: len(coordinated.members) == 0)
    for mend in mends:
        mend()
    small.wait(joining.done)
    with pytest.raises(TimeoutError):
        joining.result()
    assert not second._offsets


def compare(small: Small) -> None:
    """... all replicas, under whoever goes on to lead for so long."""
    found: list[Compared | NotComparedError] = []
    while not found or isinstance(found[-1], NotComparedError):
        leader, count = small.leader, len(found)
        node_id = leader.group.self_id.node_id
        small.call(
            node_id, small.cluster.nodes[node_id].verification.ask, leader, found.append, lambda: False
        )
        small.wait(lambda count=count: len(found) > count)  # type: ignore[misc]
    assert found[-1].outcome is Outcome.EQUAL


def test_a_replica_that_says_something_else_than_its_leader(small: Small) -> None:
    compare(small)
    (stored,) = small.follower.log.batches(3, 4)
    header = parse_header(stored.view())
    # As long as the one that was written, with a right checksum.
    other = build_batch(
        [NewRecord(None, b"x", 1)], base_offset=header.base_offset, leader_epoch=header.leader_epoch
    )
    assert len(other) == header.size_bytes
    stored.file.write_at(stored.position, other)
    with bites("replicas_say_the_same"):
        compare(small)
