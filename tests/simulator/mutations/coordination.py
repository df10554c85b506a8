"""What holds for the whole cluster: how it is formed, what nodes may act upon, what is handed out once (replication.md
sections 4, 8 and 10)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any

from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.metadata.controller import Controller
from broker.metadata.formation import ClusterFormation, Formation, FormationState, FoundingVoter, Order
from broker.metadata.ids import METADATA_TOPIC_ID, random_cluster_id, random_uuid
from broker.metadata.requests import Decision, ProducerIdBlock
from broker.network.peers import PeerIdentity
from broker.partitions.publisher import Publisher
from broker.replication.messages import GroupMessages
from broker.scheduling.background import Steps
from protocol import peer
from protocol.controller.brokers import AllocateProducerIds, AllocateProducerIdsResult
from protocol.controller.request import Request
from protocol.controller.topics import CreateTopics, NewTopic
from protocol.errors import ErrorCode
from tests.simulator.cluster import METADATA_KEY
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import ELECTION_TIMEOUT_S, LIMIT_S, Stage
from tests.simulator.mutations.switch import off, replaced

# -- formation -----------------------------------------------------------------------------------------------


def _a_majority_is_enough(_: object) -> object:
    def consider_starting(self: ClusterFormation) -> list[Order]:
        if self._state is not FormationState.EMPTY or self.node_id != self._starter:
            return []
        empty = {n: answer.directory_id for n, answer in self._answers.items() if answer.is_empty}
        empty[self.node_id] = self.directory_id
        if len(empty) <= len(self._voters) // 2:
            return []
        cluster_id = self._configured_cluster_id or random_cluster_id(self._rng)
        # Who does not answer is named all the same; it will join as somebody else.
        voters = tuple(FoundingVoter(n, empty.get(n) or random_uuid(self._rng)) for n in self._voters)
        return [self._persist(Formation(cluster_id, voters), founding=True)]

    return consider_starting


def most_volumes_are_replaced(stage: Stage) -> None:
    """A majority comes back with empty disks, and then the others with what they had. They must not make a cluster
    of their own. In the end somebody finds the old disks."""
    cluster = stage.cluster
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    cluster_id = cluster.nodes[1].cluster_id
    lost = cluster.node_ids[: len(cluster.node_ids) // 2 + 1]
    disks = {node_id: cluster.disks[node_id] for node_id in lost}
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    for node_id in lost:
        cluster.wipe(node_id)
    for node_ids in (lost, [node_id for node_id in cluster.node_ids if node_id not in lost]):
        for node_id in stage.rng.sample(node_ids, len(node_ids)):
            cluster.start(node_id)
            stage.run_for(stage.rng.uniform(0, 0.2))
        stage.run_for(stage.rng.uniform(2, 5) * ELECTION_TIMEOUT_S)
        found = {node.cluster_id for node in cluster.nodes.values()} - {None}
        assert found <= {cluster_id}, (
            f"empty nodes formed a cluster beside the disks of {cluster_id}: {found}"
        )
    for node_id in lost:
        cluster.kill(node_id)
        cluster.disks[node_id] = disks[node_id]
        cluster.oracle.nodes.disk_lost(node_id)
        cluster.start(node_id)
    stage.ready()


# -- producer ids --------------------------------------------------------------------------------------------


def _not_recorded(_: object) -> object:
    """The controller counts for itself."""

    def allocate(self: Controller, count: int = 1000) -> Decision[ProducerIdBlock]:
        first = self._image.next_producer_id
        self._image._next_producer_id += count
        return Decision((), ProducerIdBlock(first, count))

    return allocate


def _before_it_is_committed(execute: Callable[..., None]) -> object:
    def answering(self: MetadataService, request: Request[Any], reply: Callable[[Any, int], None]) -> None:
        leadership = self._leadership
        if not isinstance(request, AllocateProducerIds) or leadership is None:
            execute(self, request, reply)
            return
        decision = leadership.controller.allocate_producer_ids()
        block = decision.response
        allocated = decision.answering(AllocateProducerIdsResult(first=block.first, count=block.count))
        refusals: list[object] = []
        for _ in self._append(leadership, allocated, lambda refusal, _: refusals.append(refusal)):
            pass
        reply(refusals[0] if refusals else allocated.response, 0)

    return answering


def a_controller_that_is_cut_off_is_asked(stage: Stage) -> None:
    """The next controller knows nothing of what it gave away."""
    controller = stage.cluster.nodes[1].leaders.controller_id()
    stage.isolate(controller)
    error, given = ErrorCode.REQUEST_TIMED_OUT, -1
    with suppress(TimeoutError, OSError):
        error, given = stage.new_producer_id(controller)
    others = [node_id for node_id in stage.cluster.node_ids if node_id != controller]
    stage.wait(
        lambda: all(stage.cluster.nodes[n].leaders.controller_id() not in (-1, controller) for n in others)
    )
    again, later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1
    while again is not ErrorCode.NONE:
        again, later = stage.new_producer_id(stage.rng.choice(others))
    assert error is not ErrorCode.NONE or given != later, f"two controllers gave {given} away"


def producers_come_before_and_after_a_change_of_controllers(stage: Stage) -> None:
    """Every broker is asked for a producer id, the controller dies, and all are asked again."""
    given: dict[int, int] = {}

    def ask_all() -> None:
        for node_id in stage.cluster.alive():
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while error is not ErrorCode.NONE:
                error, producer_id = stage.new_producer_id(node_id)
            assert producer_id not in given, f"{given[producer_id]} and {node_id} hand out {producer_id}"
            given[producer_id] = node_id

    ask_all()
    controller = stage.cluster.nodes[1].leaders.controller_id()
    stage.cluster.kill(controller)
    stage.run_for(stage.rng.uniform(0, 1))
    stage.start(controller)
    for node_id in stage.cluster.node_ids:
        if node_id != controller:
            stage.cluster.kill(node_id)
            stage.start(node_id)
    ask_all()


def _metadata_end(stage: Stage, node_id: int) -> int:
    replica = stage.cluster.nodes[node_id].metadata.replica
    assert replica is not None
    return replica.log.end_offset


# -- the image -----------------------------------------------------------------------------------------------


def _as_it_comes(_: object) -> object:
    def image_read(self: Publisher) -> Steps | None:
        return None if self.has_begun else self._begin_publishing()

    return image_read


def a_node_forgets_what_it_has_acted_upon(stage: Stage) -> None:
    """Two nodes have a new topic's record durable; the third, whose disk is slow, is told that it is committed,
    makes the topic's log, which is durable at once, and loses power. The controller dies before the second node
    hears of the commit. These two begin with an older commit index. What the third made has to be what it uses."""
    cluster = stage.cluster
    if len(cluster.node_ids) > 3:
        return
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    stage.run_for(0.3)
    first = cluster.nodes[1].leaders.controller_id()
    second, third = stage.rng.sample([n for n in cluster.node_ids if n != first], 2)
    old, young = stage.topic, "young"
    stage.topic = young
    cluster.disks[third].faults.slow_factor = 200.0
    end_offset = _metadata_end(stage, second)
    stage.begin_topic(first)
    stage.wait(lambda: _metadata_end(stage, second) > end_offset)
    stage.cut(first, second)
    if not stage.waited(lambda: cluster.replica(third, stage.topic) is not None, ELECTION_TIMEOUT_S):
        stage.heal()
        return
    cluster.cut_power(third)
    cluster.kill(first)
    cluster.disks[third].faults.slow_factor = 1.0
    stage.heal()
    stage.start(third)
    stage.wait(lambda: cluster.replica(third, stage.topic) is not None)
    cluster.start(first)
    stage.write()
    for topic in (old, young):
        stage.topic = topic
        incarnation = stage.replica(third).group.self_id.incarnation
        assert incarnation == 0, f"{topic} lost its identity on an intact disk: incarnation {incarnation}"


def the_metadata_is_compacted_before_a_node_has_copied_it(stage: Stage) -> None:
    """A node has lost its metadata log. When it is registered anew, the record of a topic is superseded by another one
    above the registration, and compacted away. Then the node copies the log, whose first part ends at the row by which
    it is added: it has the registration and no topic."""
    cluster = stage.cluster
    if len(cluster.node_ids) > 3:
        return
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    controller = cluster.nodes[1].leaders.controller_id()
    node_id = stage.rng.choice([n for n in cluster.node_ids if n != controller])
    lost = cluster.nodes[node_id].metadata.replica
    assert lost is not None
    cluster.kill(node_id)
    cluster.damage.note(node_id, METADATA_KEY, is_lost=True)
    cluster.disks[node_id].vanish(lost.log.directory)
    is_copying = False

    def copied_later(append: Callable[..., None]) -> Any:
        def appended(self: GroupMessages, sender: PeerIdentity, message: peer.Append) -> None:
            is_held = message.topic_id == METADATA_TOPIC_ID and self is cluster.nodes[node_id].messages
            if is_copying or not is_held:
                append(self, sender, message)

        return appended

    with replaced(GroupMessages, "_append", copied_later):
        cluster.start(node_id)
        image = cluster.nodes[controller].metadata.image
        stage.wait(lambda: image.brokers[node_id].metadata_incarnation == 1)
        compacted = cluster.nodes[controller].metadata.replica
        assert compacted is not None
        superseding = compacted.log.end_offset
        orders = cycle(((3, 1, 2), (1, 2, 3)))
        until_s = stage.loop.time() + LIMIT_S
        while compacted.bounds.durable.mcco <= superseding:
            assert stage.loop.time() < until_s, "the metadata are not compacted"
            stage.begin_reassigning(*next(orders))
            stage.run_for(0.1)
        is_copying = True
        stage.ready(node_id)
    stage.write()
    stage.everybody_has_all()


# -- who asked for a change sees it ----------------------------------------------------------------------------


def who_asked_looks_at_once(stage: Stage) -> None:
    """Topics are created through each node, and when that has the answer it is looked at what it knows."""
    for number in range(10):
        node_id, name = stage.rng.choice(stage.cluster.node_ids), f"asked-{number}"
        known = _create_and_look(stage, node_id, name)
        stage.wait(partial(bool, known))
        assert known == [True], f"node {node_id} says that {name} is created, and does not know it"


def _create_and_look(stage: Stage, node_id: int, name: str) -> list[bool]:
    """The list gets whether the node knows the topic when it has the answer."""
    node, known = stage.cluster.nodes[node_id], list[bool]()

    def answered(_: object) -> None:
        known.append(node.metadata.image.topic_named(name) is not None)

    topic = NewTopic(name=name, num_partitions=stage.rng.randint(1, 20), replication_factor=1)
    stage.call(node_id, node.controller.call, CreateTopics(topics=[topic]), answered)
    return known


def _whatever_is_replayed(_: object) -> object:
    def pass_on(self: ControllerClient, request_id: int, pending: Any) -> None:
        del self._pending[request_id]
        pending.done(pending.outcome)

    return pass_on


MUTATIONS = (
    Mutation(
        "formation-when-all-are-empty",
        "An empty node forms a cluster only when all configured voters answer and say that they are empty (section 10)",
        off((ClusterFormation, "_consider_starting", _a_majority_is_enough)),
        story=most_volumes_are_replaced,
        note="beyond the limit of faults, on purpose: a majority of the disks is lost",
    ),
    Mutation(
        "producer-ids-recorded",
        "Producer ids are recorded in the metadata before the first of a block is handed out (section 8)",
        off((Controller, "allocate_producer_ids", _not_recorded)),
        story=producers_come_before_and_after_a_change_of_controllers,
    ),
    Mutation(
        "producer-ids-committed",
        "... and that record is committed before the first of them is handed out (sections 8 and 9)",
        off((MetadataService, "execute", _before_it_is_committed)),
        story=a_controller_that_is_cut_off_is_asked,
    ),
    Mutation(
        "image-is-current",
        "A broker acts on an image only after its replay has reached the commit index of after its start (section 4)",
        off((Publisher, "_image_read", _as_it_comes)),
        story=a_node_forgets_what_it_has_acted_upon,
        note="a property; the incarnation rule keeps it from losing anything",
    ),
    Mutation(
        "image-is-whole",
        "... which reaches as far as any leader has told: below, a compacted log lacks what is superseded above",
        off((MetadataService, "is_image_whole", lambda _: property(lambda self: True))),
        story=the_metadata_is_compacted_before_a_node_has_copied_it,
        note="a property, likewise: copies are lost, not all of them",
    ),
    Mutation(
        "change-is-seen-by-who-asked",
        "A node passes the controller's answer on when it has replayed what was decided (controller/README)",
        off((ControllerClient, "_pass_on", _whatever_is_replayed)),
        story=who_asked_looks_at_once,
    ),
)
