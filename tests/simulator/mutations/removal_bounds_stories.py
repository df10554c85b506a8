"""Schedules in which the fences of coordinated compaction matter, and that random faults hardly ever meet
(coordinated-compaction.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from broker.replication.replica import Replica
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.compaction_bounds import CompactionBounds
from raft.types import Configuration, ReplicaId
from storage.errors import CorruptLogError
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import replaced
from tests.simulator.mutations.transactional_id import TransactionalId


def a_removed_member_comes_back_with_its_log(stage: Stage) -> None:
    """B is away while a key is deleted. A and C are cleaned, B is removed, the bounds rise, the tombstone goes. B is
    added again, and its log still has the value."""
    topic = CompactedTopic(stage)
    topic.put(b"value")
    stage.everybody_has_all()
    b = stage.followers()[0]
    _go_away(stage, b)
    tombstone = topic.put(None)
    stay = [node_id for node_id in (1, 2, 3) if node_id != b]
    topic.wait_cleaned(*stay, above=tombstone)
    topic.reassign(*stay)
    topic.wait_gone(tombstone, *stay)
    stage.begin_reassigning(*stay, b)
    stage.run_for(stage.rng.uniform(0, 1))
    stage.start(b)
    is_voter = stage.waited(lambda: topic.voters() == [1, 2, 3], 10.0)
    assert is_voter, "who was added again never votes"


def a_member_is_added_and_not_cleaned_yet(stage: Stage) -> None:
    """Its logs are many, or this one is not dirty enough. All that it copies is clean below the bounds."""
    topic = CompactedTopic(stage, replicas=(1, 2))
    topic.put(b"value")
    tombstone = topic.put(None)
    topic.wait_gone(tombstone, 1, 2)
    with topic.passes_held(3):
        stage.begin_reassigning(1, 2, 3)
        is_voter = stage.waited(lambda: topic.voters() == [1, 2, 3], 10.0)
        assert is_voter, "who was added never votes"


def bounds_reach_who_is_back_before_it_reports(stage: Stage) -> None:
    """As `a_removed_member_comes_back_with_its_log`, but the leader is late to hear of that log, which is not cleaned
    meanwhile."""
    topic = CompactedTopic(stage)
    topic.put(b"value")
    stage.everybody_has_all()
    b = stage.followers()[0]
    _go_away(stage, b)
    tombstone = topic.put(None)
    stay = [node_id for node_id in (1, 2, 3) if node_id != b]
    topic.wait_cleaned(*stay, above=tombstone)
    topic.reassign(*stay)
    topic.wait_gone(tombstone, *stay)
    stage.begin_reassigning(*stay, b)
    with topic.passes_held(b):
        with _held_reports(stage, b):
            stage.start(b)
            stage.run_for(stage.rng.uniform(1, 3))
        topic.wait_voters((1, 2, 3))


def a_leader_that_has_not_heard_of_the_bounds_judges_a_learner(stage: Stage) -> None:
    """B is away while a key is deleted. A and C are cleaned, B is removed, the bounds rise, and A drops the tombstone.
    C does not hear of the bounds. B is added again, with its old log, and A sends it what comes after the tombstone.
    Then C leads."""
    topic = CompactedTopic(stage)
    topic.put(b"value")
    stage.everybody_has_all()
    a, b, c = topic.leader_and_followers()
    _go_away(stage, b)
    tombstone = topic.put(None)
    topic.wait_cleaned(a, c, above=tombstone)
    with _unheard_bounds(stage, c), topic.passes_held(b):
        topic.reassign(a, c)
        topic.wait_gone(tombstone, a)
        with _held_reports(stage, b):
            stage.begin_reassigning(a, b, c)
            stage.start(b)
            stage.wait(lambda: bool(stage.replica(a).group.configuration.learners))
            stage.wait(lambda: stage.replica(b).log.end_index == stage.replica(a).log.end_index)
            stage.lead(c)
            stage.run_for(stage.rng.uniform(0.5, 2))
    topic.wait_voters((1, 2, 3))


@contextmanager
def _unheard_bounds(stage: Stage, node_id: int) -> Iterator[None]:
    """This node does not hear of the bounds of the story's topic."""

    def lose(received: Callable[..., bool]) -> Any:
        def called(self: CompactionBounds, *args: Any) -> bool:
            replica = self._replica
            is_lost = replica.group.self_id.node_id == node_id and replica.topic == stage.topic
            return False if is_lost else received(self, *args)

        return called

    with replaced(CompactionBounds, "bounds_received", lose):
        yield


def _go_away(stage: Stage, node_id: int) -> None:
    """Killed, or without power."""
    if stage.rng.random() < 0.5:
        stage.cluster.kill(node_id)
    else:
        stage.cluster.cut_power(node_id)


def a_removal_is_appended_and_lost(stage: Stage) -> None:
    """A and C are cleaned, B is not. A is cut off, and only then appends a row that removes B."""
    topic = CompactedTopic(stage)
    topic.put(b"value")
    a, b, c = topic.leader_and_followers()
    with topic.passes_held(b):
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(a, c, above=tombstone)
        topic.wait_reported(a, c, above=tombstone)
        stage.isolate(a)
        stage.propose(Configuration(topic.identities(a, c), ()), a)
        stage.run_for(stage.rng.uniform(1, 3))
        stage.heal()
        stage.run_for(stage.rng.uniform(0, 1))
    leader = stage.leader()  # of B, too, if the row was committed after all
    stage.call(leader, stage.cluster.nodes[leader].reconciler.mark_for_reconcile, topic.key)
    topic.wait_voters((1, 2, 3))


def a_leader_starts_again_with_a_removal_that_is_not_committed(stage: Stage) -> None:
    """B was added, so neither the first row names it nor the last one. A, who has appended that one, starts again, does
    not know any more what is committed, and leads by the vote of C. C's disk hangs, so nothing is committed."""
    topic = CompactedTopic(stage, replicas=(1, 2))
    a, c = topic.leader_and_followers()
    b = 3
    topic.reassign(a, b, c)
    with topic.passes_held(b):
        topic.put(b"value")
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(a, c, above=tombstone)
        stage.isolate(a)
        stage.propose(Configuration(topic.identities(a, c), ()), a)
        stage.run_for(0.05)
        stage.cluster.kill(a)
        stage.heal()
        stage.isolate(b)
        stage.cluster.start(a)
        if not stage.waited(lambda: stage.leads(a), 5.0):
            return
        stage.cluster.disks[c].faults.hangs_until_s = stage.loop.time() + 3
        stage.run_for(stage.rng.uniform(1, 3))
        stage.heal()
    leader = stage.leader()  # of B, too, if the row was committed after all
    stage.call(leader, stage.cluster.nodes[leader].reconciler.mark_for_reconcile, topic.key)
    topic.wait_voters((1, 2, 3))


def an_addition_is_appended_and_not_committed(stage: Stage) -> None:
    """C copies what A has, who is cleaned then. A does not hear B, so the row that adds C is not committed."""
    topic = CompactedTopic(stage, replicas=(1, 2))
    a, b = topic.leader_and_followers()
    c = 3
    with topic.passes_held(a, c) as held:
        topic.put(b"value")
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(b, above=tombstone)
        topic.wait_reported(a, b, above=tombstone)
        stage.begin_reassigning(a, b, c)
        stage.cut(b, a)
        group = stage.replica(a).group
        if not stage.waited(lambda: bool(group.configuration.learners), 1.0):
            return  # A leads no longer
        stage.run_for(0.05)
        held.pop(a)
        stage.run_for(stage.rng.uniform(0.5, 1))
        stage.heal()
        topic.wait_voters((a, b, c))
        stage.run_for(0.5)
    topic.wait_gone(tombstone, a, b, c)


def a_report_comes_when_its_member_has_begun_anew(stage: Stage) -> None:
    """B alone is cleaned, and says so. Before A hears that, B's log is corrupt, and it copies what A and C have, who
    are cleaned later. B had copied its log before in A's term, too: by the term, the report could be of the new one."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    _lose_log(stage, topic, b)
    topic.wait_identity(b, 1)
    with topic.passes_held(a, c) as held, _held_reports(stage, b, incarnation=1) as reports:
        topic.put(b"value")
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(b, above=tombstone)
        stage.wait(lambda: any(report.mcco > tombstone for *_, report in reports))
        held[b] = None
        _lose_log(stage, topic, b)
        topic.wait_identity(b, 2)
        stage.everybody_has_all()
        held.pop(a)
        held.pop(c)
        topic.wait_cleaned(a, c, above=tombstone)
        for reported, *arguments in reports:
            stage.call(a, reported, *arguments)
        stage.run_for(stage.rng.uniform(0.1, 1))
    topic.wait_gone(tombstone, 1, 2, 3)


def a_cleaned_log_is_lost_and_copied_again(stage: Stage) -> None:
    """B alone is cleaned. Its log is corrupt then, and B copies what A and C have, who are cleaned later."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    with topic.passes_held(a, c) as held:
        topic.put(b"value")
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(b, above=tombstone)
        held[b] = None
        _lose_log(stage, topic, b)
        stage.lead(c)  # who does not know how far B had got
        stage.everybody_has_all()
        held.pop(a)
        held.pop(c)
        topic.wait_cleaned(a, c, above=tombstone)
        stage.run_for(stage.rng.uniform(1, 3))
    topic.wait_gone(tombstone, 1, 2, 3)


def _lose_log(stage: Stage, topic: CompactedTopic, node_id: int) -> Replica:
    """It is corrupt, and begun anew. Returns the replica that is no more."""
    replica = stage.replica(node_id)
    stage.cluster.oracle.nodes.damaged(node_id, topic.key)
    error = CorruptLogError("a log", 0, "by a story")
    stage.call(node_id, stage.cluster.nodes[node_id].replicas.log_corrupt, replica, error)
    stage.wait(lambda: stage.cluster.replica(node_id, stage.topic) not in (None, replica))
    return replica


def a_transaction_is_over_and_a_member_is_not_cleaned(stage: Stage) -> None:
    """Every member knows how it has ended. In B's log its data still carry the transactional bit."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    producer = TransactionalId(stage, version=2)
    producer.init()
    producer.key = b"of a transaction"
    with topic.passes_held(b):
        transaction = producer.begin()
        producer.write(transaction, stage.topic)
        producer.end(transaction, is_commit=stage.rng.random() < 0.5)
        last = topic.put(b"last")
        stage.everybody_has_all()
        topic.wait_cleaned(a, c, above=last)
        stage.run_for(stage.rng.uniform(1, 3))


@contextmanager
def _held_reports(stage: Stage, node_id: int, incarnation: int = 0) -> Iterator[list[Any]]:
    """Reports of this incarnation there are not heard. They are in the list, each with who would have."""
    held: list[Any] = []

    def hold(reported: Callable[..., None]) -> Any:
        def called(self: BoundsExchange, replica: Replica, member: ReplicaId, *args: Any) -> None:
            if (
                member.node_id == node_id
                and member.incarnation == incarnation
                and replica.topic == stage.topic
            ):
                held.append((partial(reported, self), replica, member, *args))
            else:
                reported(self, replica, member, *args)

        return called

    with replaced(BoundsExchange, "reported", hold):
        yield held


def a_follower_misses_that_the_bounds_rise(stage: Stage) -> None:
    """And nothing else is said in an idle group."""
    topic = CompactedTopic(stage)
    a, b, _ = topic.leader_and_followers()
    tombstone = _bounds_rise_unheard(stage, topic, a, b)
    stage.heal()
    is_gone = stage.waited(lambda: not topic.holds(b, tombstone), 10.0)
    assert is_gone, "a follower does not get to know the bounds"


def a_new_leader_knows_bounds_that_a_follower_does_not(stage: Stage) -> None:
    """They rose under the leader before, and do not rise any more."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    tombstone = _bounds_rise_unheard(stage, topic, a, b)
    stage.heal()
    stage.lead(c)
    is_gone = stage.waited(lambda: not topic.holds(b, tombstone), 10.0)
    assert is_gone, "a follower does not get to know the bounds"


def a_new_leader_knows_older_bounds_than_a_follower(stage: Stage) -> None:
    """They rose twice, and B heard of the first time only. A is gone, so B cannot raise them."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    topic.put(b"value")
    tombstone = topic.put(None)
    stage.wait(lambda: all(topic.bounds(each).mtro > tombstone for each in (a, b, c)))
    tombstone = _bounds_rise_unheard(stage, topic, a, b)
    stage.wait(lambda: topic.bounds(c).mtro > tombstone)
    stage.cluster.kill(a)
    stage.heal()
    stage.wait(lambda: stage.leader_now() in (b, c))
    stage.run_for(stage.rng.uniform(1, 2))
    stage.start(a)


def _bounds_rise_unheard(stage: Stage, topic: CompactedTopic, leader: int, follower: int) -> int:
    """This leader knows it, and this follower does not hear of it. Returns the offset of the tombstone below them."""
    topic.put(b"value")
    tombstone = topic.put(None)
    stage.everybody_has_all()
    stage.wait(lambda: topic.bounds(leader).mtro > tombstone)
    stage.cut(leader, follower)
    stage.run_for(stage.rng.uniform(0.05, 0.3))
    return tombstone


def a_report_is_lost(stage: Stage) -> None:
    """And nothing else is said in an idle group."""
    topic = CompactedTopic(stage)
    a, b, c = topic.leader_and_followers()
    with topic.passes_held(b) as held:
        topic.put(b"value")
        tombstone = topic.put(None)
        stage.everybody_has_all()
        topic.wait_cleaned(a, c, above=tombstone)
        stage.cut(b, a)
        held.pop(b)
        topic.wait_cleaned(b, above=tombstone)
        stage.run_for(0.01)
        stage.heal()
    is_gone = stage.waited(lambda: not any(topic.holds(each, tombstone) for each in (a, b, c)), 10.0)
    assert is_gone, "the leader does not get to know that a follower is cleaned"
