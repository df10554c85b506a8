"""How a group changes its members (replication.md section 3; Raft thesis, chapter 4), and who counts meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from broker.partitions import reconciler
from broker.partitions.reconciler import Reconciler
from broker.replication import waits
from broker.replication.replica import Replica
from broker.replication.waits import ReplicaWaits
from protocol.controller.topics import TopicSetting
from protocol.errors import ErrorCode
from raft import leader, plausibility
from raft.group import Group
from raft.types import Configuration, Output, ProposalRefusedError, ReplicaId
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import CARELESS, ELECTION_TIMEOUT_S, Stage, Written
from tests.simulator.mutations.switch import off, replaced


def changes_are_the_storys_own(cluster: SimulatedCluster, rng: random.Random) -> AbstractContextManager[None]:
    """Nobody moves the members towards the target meanwhile."""
    del cluster, rng
    return replaced(Reconciler, "_reconcile_groups", lambda _: lambda self, now: None)


def _ids(stage: Stage) -> dict[int, ReplicaId]:
    return {
        node_id: stage.replica(node_id).group.self_id
        for node_id in stage.cluster.node_ids
        if stage.cluster.replica(node_id, stage.topic) is not None
    }


def _four_voters(stage: Stage) -> dict[int, ReplicaId]:
    """A topic on four nodes, all of which have it; nobody where there are fewer nodes."""
    if len(stage.cluster.node_ids) < 4:
        return {}
    stage.create_topic(replicas=(1, 2, 3, 4))
    stage.write()
    stage.everybody_has_all()
    return _ids(stage)


# -- one server at a time ------------------------------------------------------------------------------------


def two_followers_are_promoted_at_once(stage: Stage) -> None:
    """From one voter to three in one step: the old majority is the first alone, the new one the other two. The
    first has not flushed the change when it loses power, and goes on alone."""
    stage.create_topic()
    stage.write()
    one = stage.lead_elsewhere_than_the_controller()
    ids = _ids(stage)
    two, three = (ids[node_id] for node_id in stage.followers())
    for configuration in (
        Configuration((ids[one], two), ()),
        Configuration((ids[one],), ()),
        Configuration((ids[one],), (two,)),
        Configuration((ids[one],), (two, three)),
    ):
        stage.change(configuration)
    stage.write()
    stage.wait(lambda: len({stage.replica(x).group.end_index for x in ids}) == 1)
    stage.cluster.disks[one].faults.slow_factor = 500.0
    everybody = Configuration((ids[one], two, three), ())
    try:
        stage.propose(everybody)
    except ProposalRefusedError:
        stage.cluster.disks[one].faults.slow_factor = 1.0
        stage.change(Configuration((ids[one], two), (three,)))
        stage.change(everybody)
        return
    others = (two.node_id, three.node_id)
    stage.wait(
        lambda: (
            all(stage.replica(x).group.configuration == everybody for x in others)
            and all(stage.replica(x).group.persisted_end == stage.replica(x).group.end_index for x in others)
        )
    )
    for other in others:
        stage.cut(other, sum(others) - other)
    stage.cluster.cut_power(one)
    stage.cluster.disks[one].faults.slow_factor = 1.0
    stage.cluster.start(one)
    stage.waited(lambda: stage.leads(one), 3 * ELECTION_TIMEOUT_S)
    stage.isolate(one)
    stage.join(*others)
    stage.run_for(stage.rng.uniform(2, 4) * ELECTION_TIMEOUT_S)
    for node_id in ids:
        replica = stage.cluster.replica(node_id, stage.topic)
        if replica is not None and replica.is_serving:
            stage.append(node_id, producer_id=CARELESS)
    stage.run_for(0.5)
    stage.heal()
    stage.write()


# -- only after an entry of the own term is committed --------------------------------------------------------


def _at_once(propose: Callable[..., Output]) -> object:
    def propose_configuration(self: Group, configuration: Configuration, now: float) -> Output:
        commit_end, is_uncommitted = self.commit_end, self.is_change_uncommitted
        self.commit_end, self.is_change_uncommitted = self.end_index, False
        try:
            return propose(self, configuration, now)
        finally:
            self.commit_end = commit_end
            self.is_change_uncommitted = is_uncommitted or self.is_change_uncommitted

    return propose_configuration


def two_leaders_each_remove_one(stage: Stage) -> None:
    """Of four voters the first removes the fourth, and is cut off before anybody hears. The second leads, with the
    votes of the third and the fourth, and removes the first before its own row has reached the third; with the
    fourth it has a majority. The first and the third have one, too."""
    ids = _four_voters(stage)
    if not ids:
        return
    first = stage.leader()
    others = stage.followers()
    stage.isolate(first)
    stage.propose(Configuration(tuple(i for n, i in ids.items() if n != others[-1]), ()))
    stage.wait(lambda: any(stage.replica(n).is_leader for n in others))
    second = next(n for n in others if stage.replica(n).is_leader)
    third = next(n for n in others[:-1] if n != second) if second != others[-1] else others[0]
    fourth = next(n for n in others if n not in (second, third))
    stage.cut(second, third)
    stage.cut(third, second)
    refused = True
    end_s = stage.loop.time() + 0.5
    while refused and stage.loop.time() < end_s and stage.replica(second).is_leader:
        try:
            stage.propose(Configuration(tuple(i for n, i in ids.items() if n != first), ()), second)
            refused = False
        except ProposalRefusedError:
            stage.run_for(0.01)
    stage.run_for(0.2)
    if stage.replica(second).is_serving and stage.replica(second).group.can_propose:
        stage.append(second, producer_id=CARELESS)
    stage.run_for(0.2)
    for node_id in (second, fourth):
        stage.cluster.kill(node_id)
    stage.heal()
    stage.run_for(stage.rng.uniform(3, 5) * ELECTION_TIMEOUT_S)
    stage.cluster.start(second, fourth)
    wanted = Configuration(tuple(ids.values()), ())
    _restore(stage, wanted)


def _check_copies(stage: Stage, replica: Replica, written: Written, required: int) -> None:
    """What the client was told of its record, beside the disks. `required`: min.insync.replicas."""
    if written.error is ErrorCode.NONE:
        in_sync, term = stage.cluster.oracle.nodes.in_sync, replica.group.term
        in_sync.told(replica.key, stage.topic, written.base_offset, term, required)


def _restore(stage: Stage, wanted: Configuration) -> None:
    """Back to the target that metadata names, step by step."""
    while True:
        leader = stage.leader()
        configuration = stage.replica(leader).group.configuration
        missing = [voter for voter in wanted.voters if voter not in configuration.voters]
        if not missing:
            return
        learners = configuration.learners
        if missing[0] in learners:
            stage.wait(partial(_is_caught_up, stage, leader, missing[0]))
            step = Configuration(
                (*configuration.voters, missing[0]), tuple(x for x in learners if x != missing[0])
            )
        else:
            step = Configuration(configuration.voters, (*learners, missing[0]))
        stage.change(step)


def _is_caught_up(stage: Stage, leader: int, replica: ReplicaId) -> bool:
    return stage.replica(leader).group.is_caught_up(replica, stage.loop.time(), 1.0)


# -- caught up before it is promoted -------------------------------------------------------------------------


def _promoted_at_once(next_change: Callable[..., Configuration | None]) -> object:
    def change(
        configuration: Configuration, target: list[ReplicaId], caught_up: object, *, leader: ReplicaId
    ) -> Configuration | None:
        return next_change(configuration, target, lambda replica: True, leader=leader)

    return change


def a_fourth_voter_is_added_and_does_not_answer(stage: Stage) -> None:
    """Three voters, a fourth is to be added and does not answer; of the three one dies. The other two are a
    majority and take writes, because the fourth does not count before it has the log."""
    ids = _four_voters(stage)
    if not ids:
        return
    leader = stage.leader()
    fourth, dying, _ = stage.followers()
    stage.cluster.kill(fourth)
    stage.change(Configuration(tuple(i for n, i in ids.items() if n != fourth), ()))
    stage.call(leader, stage.cluster.nodes[leader].reconciler.mark_for_reconcile, stage.replica(leader).key)
    stage.run_for(stage.rng.uniform(0.5, 1.5))
    stage.cluster.kill(dying)
    written = stage.append(stage.leader(), producer_id=CARELESS)
    stage.waited(lambda: written.error is not None, 5 * ELECTION_TIMEOUT_S)
    assert written.error is ErrorCode.NONE, f"two of three voters take no writes: {written.error}"
    stage.cluster.start(fourth, dying)
    stage.write()


# -- what was committed before a voter was added -------------------------------------------------------------


def _by_the_present_voters(acknowledged_offset: Callable[[ReplicaWaits], int]) -> object:
    def offset(self: ReplicaWaits) -> int:
        replica = self._replica
        if replica.config.min_insync_replicas <= len(replica.group.configuration.voters) // 2 + 1:
            return replica.high_watermark
        return acknowledged_offset(self)

    return offset


def a_fourth_voter_is_added_while_a_third_copy_is_late(stage: Stage) -> None:
    """Two of three voters have committed a record, and its client waits for the third copy. A fourth voter is added,
    which lacks the record too."""
    stage.settings = (TopicSetting(name="min.insync.replicas", value="3"),)
    ids = _four_voters(stage)
    if not ids:
        return
    leader = stage.leader()
    replica = stage.replica(leader)
    fourth, late, prompt = stage.followers()
    stage.change(Configuration(tuple(i for n, i in ids.items() if n != fourth), (ids[fourth],)))
    stage.isolate(fourth)
    stage.isolate(late)
    written = stage.append(leader)
    stage.wait(lambda: replica.high_watermark > written.base_offset)
    wanted = Configuration(tuple(ids.values()), ())
    stage.propose(wanted, leader)
    stage.wait(lambda: stage.replica(prompt).group.persisted_end == replica.group.end_index)
    stage.waited(lambda: written.error is not None, stage.rng.uniform(0.1, 0.4))
    _check_copies(stage, replica, written, 3)
    stage.heal()
    _restore(stage, wanted)
    stage.write(sequence=written.sequence)
    stage.write()


# -- what was sent before a voter was removed ----------------------------------------------------------------


def the_second_voter_is_removed_while_a_record_waits_for_it(stage: Stage) -> None:
    """min.insync.replicas is two, and two voters there are. One is cut off, and a client's record waits for it; then it
    is removed, and the other one is a majority."""
    stage.settings = (TopicSetting(name="min.insync.replicas", value="2"),)
    stage.create_topic()
    stage.write()
    leader = stage.lead_elsewhere_than_the_controller()
    replica = stage.replica(leader)
    everybody = replica.group.configuration
    gone, late = stage.followers()
    stage.change(Configuration(tuple(v for v in everybody.voters if v.node_id != gone), ()))
    stage.isolate(late)
    written = stage.append(leader)
    stage.run_for(stage.rng.uniform(0, 0.1))
    stage.propose(Configuration((replica.group.self_id,), ()), leader)
    stage.wait(lambda: written.error is not None)
    _check_copies(stage, replica, written, 2)
    stage.heal()
    _restore(stage, everybody)
    stage.write(sequence=written.sequence)
    stage.write()


MUTATIONS = (
    Mutation(
        "one-change-at-a-time",
        "Members change one server at a time (section 3)",
        off(
            (leader, "single_change_refusal", lambda _: lambda old, new: None),
            (plausibility, "single_change_refusal", lambda _: lambda old, new: None),
        ),
        conditions=changes_are_the_storys_own,
        story=two_followers_are_promoted_at_once,
    ),
    Mutation(
        "change-after-own-commit",
        "A leader commits an entry of its own term before it changes members (section 3; Ongaro's correction of 2015)",
        off((Group, "propose_configuration", _at_once)),
        conditions=changes_are_the_storys_own,
        story=two_leaders_each_remove_one,
        note="needs four nodes; with fewer the story is empty",
    ),
    Mutation(
        "learner-is-caught-up",
        "A learner is promoted when it has caught up (section 3)",
        off((reconciler, "next_change", _promoted_at_once)),
        story=a_fourth_voter_is_added_and_does_not_answer,
        note="a property: availability, not safety (Raft thesis, section 4.2.1). Needs four nodes",
    ),
    Mutation(
        "in-sync-while-members-change",
        "What is committed under fewer voters is no majority of the present ones (section 6, min.insync.replicas)",
        off((ReplicaWaits, "acknowledged_offset", _by_the_present_voters)),
        conditions=changes_are_the_storys_own,
        story=a_fourth_voter_is_added_while_a_third_copy_is_late,
        note="needs four nodes",
    ),
    Mutation(
        "in-sync-when-answered",
        "Fewer voters than min.insync.replicas acknowledge nothing, also of what they took before (section 6)",
        off((waits, "has_enough_voters", lambda _: lambda replica: True)),
        conditions=changes_are_the_storys_own,
        story=the_second_voter_is_removed_while_a_record_waits_for_it,
    ),
)
