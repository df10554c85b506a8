"""The controller's decisions, code by code as Apache Kafka answers (client-behaviour.md B.2)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.descriptors import limit_for, replicas_of
from broker.config.layers import LiveSettings
from broker.config.resources import Resources
from broker.config.sources import load
from broker.metadata.controller import Controller
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.ids import OFFSETS_TOPIC_NAME
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import encode
from broker.metadata.records import BrokerRecord, Endpoint, ProducerIdsRecord, ReplicaIdentity, TopicRecord
from broker.metadata.requests import Deciding, Decision, NewTopic, Reassignment, ReplicaRenewal, TopicResult
from protocol.codec import at_once
from protocol.errors import ErrorCode, KafkaError


def directory(node_id: int, generation: int = 0) -> UUID:
    return UUID(int=1000 * (generation + 1) + node_id)


def registration(node_id: int, generation: int = 0, boot: int = 1) -> BrokerRecord:
    endpoint = Endpoint("localhost", 9000 + node_id)
    return BrokerRecord(
        node_id, directory(node_id, generation), UUID(int=boot), {"PLAIN": endpoint}, endpoint
    )


T = TypeVar("T")


class Cluster:
    """An image and a controller over it; `alive` are the directories that are connected."""

    def __init__(
        self, brokers: Sequence[int] = (1, 2, 3), config: ControllerConfig | None = None, seed: int = 1
    ) -> None:
        self.image = MetadataImage()
        self.alive = {directory(node_id) for node_id in brokers}
        self.controller = Controller(
            self.image,
            config or ControllerConfig(),
            random.Random(seed),
            is_alive=lambda broker: broker.directory_id in self.alive,
            resources=Resources(LiveSettings(load().config)),
        )
        for node_id in brokers:
            self.apply(self.controller.brokers.register(registration(node_id)))

    def apply(self, decided: Decision[T] | Deciding[T]) -> T:
        """What the leader does: replay at append."""
        decision = decided if isinstance(decided, Decision) else at_once(decided)
        for key, value in decision.records:
            self.image.replay(key, value, self.image.end_offset, 1)
        return decision.response

    def create(self, *topics: NewTopic, validate_only: bool = False) -> tuple[TopicResult, ...]:
        return self.apply(self.controller.topics.create(topics, validate_only=validate_only))

    def refusal(self, topic: NewTopic) -> ErrorCode:
        """The answer to a topic that has to be refused."""
        decision = at_once(self.controller.topics.create([topic]))
        (result,) = decision.response
        assert decision.records == () and result.error is not ErrorCode.NONE and result.message
        return result.error

    def topic(self, name: str) -> TopicRecord:
        topic = self.image.topic_named(name)
        assert topic is not None
        return topic


# -- creating topics --------------------------------------------------------------------------------------------


def test_a_new_topic_has_the_asked_shape_and_founding_identities() -> None:
    cluster = Cluster()
    (result,) = cluster.create(NewTopic("orders", 6, 3, configs={"retention.ms": "1"}))
    assert (result.error, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 6, 3)
    assert result.configs == {"retention.ms": "1"}
    topic = cluster.topic("orders")
    assert topic.topic_id == result.topic_id
    assert Counter(partition.replicas[0] for partition in topic.partitions) == {1: 2, 2: 2, 3: 2}
    for partition in topic.partitions:
        assert partition.directories == tuple(directory(node_id) for node_id in partition.replicas)
        assert partition.incarnations == (0, 0, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "caf\u00e9", "a\n", "x" * 250])
def test_bad_names(name: str) -> None:
    assert Cluster().refusal(NewTopic(name, 1, 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_and_oddest_legal_names() -> None:
    cluster = Cluster()
    results = cluster.create(NewTopic("x" * 249, 1, 1), NewTopic("...", 1, 1), NewTopic("-", 1, 1))
    assert [result.error for result in results] == [ErrorCode.NONE] * 3


def test_names_that_exist_or_collide() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("a.b", 1, 1))
    assert cluster.refusal(NewTopic("a.b", 1, 1)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.refusal(NewTopic("a_b", 1, 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.refusal(NewTopic("__cluster.metadata", 1, 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.refusal(NewTopic("__cluster_metadata", 1, 1)) is ErrorCode.INVALID_REQUEST
    first, second = cluster.create(NewTopic("c.d", 1, 1), NewTopic("c_d", 1, 1))
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_name_given_twice_creates_nothing_of_that_name() -> None:
    cluster = Cluster()
    results = cluster.create(NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("a", 2, 1))
    assert [(result.name, result.error) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert cluster.image.topic_named("a") is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("a", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", -1, -1, ((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", -1, -1, ((0, (1, 9)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", -1, -1, ((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", -1, -1, ((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", -1, -1, ((0, (1,)), (1, (2, 3)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", 1, 1, configs={"unknown": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_shapes(topic: NewTopic, error: ErrorCode) -> None:
    assert Cluster().refusal(topic) is error


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    cluster = Cluster()
    (result,) = cluster.create(NewTopic("a", assignments=((1, (3, 1)), (0, (2, 3)))))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert [partition.replicas for partition in cluster.topic("a").partitions] == [(2, 3), (3, 1)]


def test_a_manual_assignment_needs_somebody_alive() -> None:
    cluster = Cluster()
    cluster.alive.remove(directory(3))
    assert cluster.refusal(NewTopic("a", assignments=((0, (3,)),))) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (result,) = cluster.create(NewTopic("b", assignments=((0, (3, 1)),)))
    assert result.error is ErrorCode.NONE


@pytest.mark.parametrize(("brokers", "expected"), [((1,), 1), ((1, 2), 2), ((1, 2, 3), 3), ((1, 2, 3, 4), 3)])
def test_the_default_replication_factor_is_three_or_all_brokers(
    brokers: Sequence[int], expected: int
) -> None:
    (result,) = Cluster(brokers, ControllerConfig(num_partitions=4)).create(NewTopic("a"))
    assert (result.num_partitions, result.replication_factor) == (4, expected)


def test_a_topic_made_while_the_cluster_starts_does_not_stay_at_one_replica() -> None:
    cluster = Cluster((1,), ControllerConfig(expected_brokers=3))
    assert cluster.refusal(NewTopic("a")) is ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.alive |= {directory(2)}
    cluster.apply(cluster.controller.brokers.register(registration(2)))
    assert cluster.refusal(NewTopic("a")) is ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.apply(cluster.controller.brokers.register(registration(3)))
    (result,) = cluster.create(NewTopic("a"))
    assert result.replication_factor == 3


def test_while_a_broker_restarts_topics_still_get_all_their_replicas() -> None:
    cluster = Cluster((1, 2, 3, 4))
    cluster.alive.remove(directory(2))
    cluster.create(NewTopic("narrow", 12, 3), NewTopic("wide", 12, 4))
    assert all(2 not in partition.replicas for partition in cluster.topic("narrow").partitions)
    assert all(partition.replicas[-1] == 2 for partition in cluster.topic("wide").partitions)
    cluster.alive.remove(directory(3))
    assert cluster.refusal(NewTopic("late", 1, 4)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_validate_only_answers_the_same_and_creates_nothing() -> None:
    cluster = Cluster()
    (result,) = cluster.create(NewTopic("a", 2, 3), validate_only=True)
    assert (result.error, result.num_partitions, result.topic_id) == (ErrorCode.NONE, 2, None)
    assert not cluster.image.topics
    (result,) = cluster.create(NewTopic("a", 2, 9), validate_only=True)
    assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_huge_requests_are_refused_before_anything_is_allocated() -> None:
    cluster = Cluster(config=ControllerConfig(max_partitions_per_request=10, max_partitions=15))
    assert cluster.refusal(NewTopic("a", 2**31 - 1, 1)) is ErrorCode.POLICY_VIOLATION
    results = cluster.create(NewTopic("a", 6, 1), NewTopic("b", 6, 1), NewTopic("c", 4, 1))
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert cluster.refusal(NewTopic("d", 6, 1)) is ErrorCode.POLICY_VIOLATION
    (result,) = cluster.create(NewTopic("d", 5, 1))
    assert result.error is ErrorCode.NONE


def test_topics_of_the_cluster_are_created_when_clients_have_made_as_many_partitions_as_may_be() -> None:
    cluster = Cluster(config=ControllerConfig(max_partitions=5))
    cluster.create(NewTopic("a", 5, 1))
    assert cluster.refusal(NewTopic("b", 1, 1)) is ErrorCode.POLICY_VIOLATION
    internal = cluster.controller.topics.create([NewTopic(OFFSETS_TOPIC_NAME, 50, 3)], is_internal=True)
    (result,) = cluster.apply(internal)
    assert result.error is ErrorCode.NONE


def test_partitions_for_which_a_node_cannot_open_files_are_refused() -> None:
    limit = limit_for(10)
    assert replicas_of(limit) == 10
    cluster = Cluster((1, 2), config=ControllerConfig(descriptor_limit=limit))
    refused = ErrorCode.POLICY_VIOLATION
    results = cluster.create(NewTopic("a", 4, 2), NewTopic("b", 7, 2), NewTopic("c", 2, 2))
    assert [result.error for result in results] == [ErrorCode.NONE, refused, ErrorCode.NONE]
    assert results[1].message is not None and "broker 1 would have 11 replicas" in results[1].message
    assert cluster.refusal(NewTopic("d", -1, -1, tuple((number, (2,)) for number in range(5)))) is refused
    (result,) = cluster.create(NewTopic("d", -1, -1, tuple((number, (2,)) for number in range(4))))
    assert result.error is ErrorCode.NONE, "broker 2 is full now, broker 1 is not"
    assert cluster.refusal(NewTopic("e", 1, 2)) is refused
    (result,) = cluster.create(NewTopic("e", -1, -1, ((0, (1,)),)))
    assert result.error is ErrorCode.NONE


def test_auto_create_uses_the_defaults_and_leaves_existing_topics_alone() -> None:
    cluster = Cluster(config=ControllerConfig(num_partitions=2))
    cluster.create(NewTopic("old", 1, 1))
    before = cluster.topic("old")
    results = cluster.apply(cluster.controller.topics.create_missing(["new", "old", "new", "bad name"]))
    assert [(result.name, result.error) for result in results] == [
        ("new", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert len(cluster.topic("new").partitions) == 2 and cluster.topic("old") == before


def test_a_decision_sees_earlier_ones_that_are_replayed_and_changes_nothing_itself() -> None:
    cluster = Cluster()
    first = cluster.controller.topics.create([NewTopic("a", 1, 1)])
    assert cluster.image.topic_named("a") is None
    cluster.apply(first)
    assert cluster.refusal(NewTopic("a", 1, 1)) is ErrorCode.TOPIC_ALREADY_EXISTS


# -- deleting topics --------------------------------------------------------------------------------------------


def test_topics_are_deleted() -> None:
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.create(NewTopic(name, 1, 1))
    a, b = cluster.topic("a").topic_id, cluster.topic("b").topic_id
    outcomes = cluster.apply(cluster.controller.topics.delete([a, b, UUID(int=5), a]))
    assert list(outcomes) == [a, b, UUID(int=5)]
    codes = [refusal and refusal.code for refusal in outcomes.values()]
    assert codes == [None, None, ErrorCode.UNKNOWN_TOPIC_ID]
    assert [topic.name for topic in cluster.image.topics_by_name()] == ["c"]


def test_a_recreated_topic_has_another_id() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("a", 1, 1))
    old = cluster.topic("a").topic_id
    cluster.apply(cluster.controller.topics.delete([old]))
    cluster.create(NewTopic("a", 1, 1))
    assert cluster.topic("a").topic_id != old


# -- brokers ----------------------------------------------------------------------------------------------------


def test_a_registration_is_written_only_when_it_says_something_new() -> None:
    cluster = Cluster()
    assert at_once(cluster.controller.brokers.register(registration(1))).records == ()
    restarted = registration(1, boot=2)
    assert at_once(cluster.controller.brokers.register(restarted)).records == (encode(restarted),)


def test_two_live_directories_under_one_node_id_are_refused() -> None:
    cluster = Cluster()
    with pytest.raises(KafkaError) as refusal:
        at_once(cluster.controller.brokers.register(registration(1, generation=1)))
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_new_volume_becomes_the_wish_for_every_replica_of_the_node() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("everywhere", 3, 3), NewTopic("elsewhere", assignments=((0, (2, 3)),)))
    untouched = cluster.topic("elsewhere")
    cluster.alive.remove(directory(1))
    cluster.apply(cluster.controller.brokers.register(registration(1, generation=1)))
    for partition in cluster.topic("everywhere").partitions:
        identities = dict(zip(partition.replicas, partition.directories, strict=True))
        assert identities == {1: directory(1, 1), 2: directory(2), 3: directory(3)}
    assert cluster.topic("elsewhere") == untouched


def test_an_old_disk_that_is_put_back_after_half_a_registration_is_named_by_all_topics() -> None:
    """A change of leaders may keep only the first batches of a decision."""
    cluster = Cluster((1, 2, 3, 4))
    cluster.create(NewTopic("a", assignments=((0, (1, 2, 3)),)), NewTopic("b", assignments=((0, (1, 2, 3)),)))
    cluster.apply(cluster.controller.reassignments.reassign([Reassignment("a", 0, (1, 3, 4))]))
    before = cluster.topic("a"), cluster.topic("b")
    cluster.alive.remove(directory(1))
    decision = at_once(cluster.controller.brokers.register(registration(1, generation=1)))
    assert len(decision.records) == 3
    cluster.apply(Decision(decision.records[:1], None))
    assert cluster.topic("a").partitions[0].directories[0] == directory(1, 1)
    assert cluster.topic("b") == before[1]
    cluster.apply(cluster.controller.brokers.register(registration(1, boot=2)))
    after = cluster.topic("a").partitions[0]
    assert (after.identities, after.founding) == (
        before[0].partitions[0].identities,
        before[0].partitions[0].founding,
    )
    assert after.is_reassigning and after.removing == before[0].partitions[0].removing
    assert cluster.topic("b") == before[1]


def test_a_restart_changes_no_target() -> None:
    cluster = Cluster((1, 2, 3, 4))
    cluster.create(NewTopic("a", assignments=((0, (1, 2, 3)), (1, (1, 2, 3)))))
    renewal = ReplicaRenewal(cluster.topic("a").topic_id, 0, 1)
    cluster.apply(cluster.controller.brokers.renew_replicas(1, directory(1), [renewal]))
    cluster.apply(cluster.controller.reassignments.reassign([Reassignment("a", 1, (2, 3, 4))]))
    restarted = registration(1, boot=2)
    assert at_once(cluster.controller.brokers.register(restarted)).records == (encode(restarted),)


def test_changes_of_the_target_never_change_what_the_replicas_began_with() -> None:
    """Row 0 is computed from the topic record. Were it computed from the target, a node on a new volume would make
    itself a founding voter, and two of them a majority without any data."""
    cluster = Cluster()
    cluster.create(NewTopic("a", assignments=((0, (1, 2, 3)),)))
    began = tuple((node_id, directory(node_id)) for node_id in (1, 2, 3))
    assert cluster.topic("a").partitions[0].founding == began
    for node_id in (1, 2):
        cluster.alive.remove(directory(node_id))
        cluster.apply(cluster.controller.brokers.register(registration(node_id, generation=1)))
    renewal = ReplicaRenewal(cluster.topic("a").topic_id, 0, 1)
    cluster.apply(cluster.controller.brokers.renew_replicas(3, directory(3), [renewal]))
    partition = cluster.topic("a").partitions[0]
    assert partition.directories == (directory(1, 1), directory(2, 1), directory(3))
    assert partition.founding == began


def test_a_discarded_log_becomes_the_wish_for_its_new_incarnation() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("a", assignments=((0, (1, 2)), (1, (2, 3)))))
    topic_id = cluster.topic("a").topic_id

    def renew(*renewals: ReplicaRenewal) -> int:
        decision = at_once(cluster.controller.brokers.renew_replicas(2, directory(2), renewals))
        cluster.apply(decision)
        return len(decision.records)

    assert renew(ReplicaRenewal(topic_id, 0, 1), ReplicaRenewal(topic_id, 1, 4)) == 1
    assert [partition.incarnations for partition in cluster.topic("a").partitions] == [(0, 1), (4, 0)]
    assert (
        renew(
            ReplicaRenewal(topic_id, 1, 3), ReplicaRenewal(topic_id, 9, 1), ReplicaRenewal(UUID(int=5), 0, 1)
        )
        == 0
    )
    with pytest.raises(KafkaError) as refusal:
        at_once(
            cluster.controller.brokers.renew_replicas(2, directory(2, 1), [ReplicaRenewal(topic_id, 0, 9)])
        )
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# -- producer ids -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5000), max_size=10))
def test_no_producer_id_is_ever_in_two_blocks(counts: list[int]) -> None:
    cluster = Cluster()
    end = 0
    for count in counts:
        block = cluster.apply(cluster.controller.allocate_producer_ids(count))
        assert (block.first, block.count) == (end, count)
        end += count


def test_used_up_producer_ids_are_an_error_not_a_second_round() -> None:
    cluster = Cluster()
    cluster.apply(Decision((encode(ProducerIdsRecord(2**63 - 1)),), None))
    with pytest.raises(KafkaError):
        cluster.controller.allocate_producer_ids()


# -- reassignment ----------------------------------------------------------------------------------------------


def reassign(cluster: Cluster, *replicas: int, topic: str = "a", partition: int = 0) -> ErrorCode:
    (result,) = cluster.apply(
        cluster.controller.reassignments.reassign([Reassignment(topic, partition, replicas)])
    )
    assert (result.topic, result.partition) == (topic, partition)
    assert (result.error is ErrorCode.NONE) == (result.message is None)
    return result.error


def moving(brokers: Sequence[int] = (1, 2, 3, 4, 5)) -> Cluster:
    """A topic with two partitions on nodes 1 to 3."""
    cluster = Cluster(brokers)
    cluster.create(NewTopic("a", assignments=((0, (1, 2, 3)), (1, (1, 2, 3)))))
    return cluster


def test_a_moved_partition_wishes_for_new_replicas_and_remembers_who_goes() -> None:
    cluster = moving()
    founding = cluster.topic("a").partitions[0].founding
    assert reassign(cluster, 4, 3, 5) is ErrorCode.NONE
    moved, other = cluster.topic("a").partitions
    assert moved.replicas == (4, 3, 5)
    assert moved.directories == (directory(4), directory(3), directory(5))
    assert moved.incarnations == (0, 0, 0)
    assert moved.removing == ((1, directory(1), 0), (2, directory(2), 0))
    assert moved.founding == founding, "row 0 stays what it is"
    assert other == cluster.topic("a").partitions[1] and other.removing == ()


def test_who_stays_or_comes_back_while_it_goes_keeps_its_identity() -> None:
    """A target that is changed again before it is reached: the log is still there, and so is its vote."""
    cluster = moving()
    renewal = ReplicaRenewal(cluster.topic("a").topic_id, 0, 2)
    cluster.apply(cluster.controller.brokers.renew_replicas(1, directory(1), [renewal]))
    reassign(cluster, 4, 5, 3)
    assert cluster.topic("a").partitions[0].removing[0] == (1, directory(1), 2)
    reassign(cluster, 1, 4)
    partition = cluster.topic("a").partitions[0]
    assert (partition.replicas, partition.incarnations) == ((1, 4), (2, 0))
    assert sorted(replica.node_id for replica in partition.removing) == [2, 3, 5]


def test_who_lost_its_disk_while_it_went_comes_back_as_another() -> None:
    cluster = moving()
    reassign(cluster, 2, 3, 4)
    cluster.alive.remove(directory(1))
    cluster.alive.add(directory(1, 1))
    cluster.apply(cluster.controller.brokers.register(registration(1, 1)))
    reassign(cluster, 1, 2, 3)
    assert cluster.topic("a").partitions[0].directories[0] == directory(1, 1)


def test_a_reassignment_is_finished_when_the_fact_is_the_wish_of_now() -> None:
    cluster = moving()
    topic_id = cluster.topic("a").topic_id
    reassign(cluster, 1, 4)
    now = cluster.image.end_offset
    early = [ReplicaIdentity(node_id, directory(node_id), 0) for node_id in (1, 2, 4)]
    assert not at_once(cluster.controller.reassignments.finish(topic_id, 0, early, now)).records
    voters = [early[2], early[0]]
    assert not at_once(cluster.controller.reassignments.finish(topic_id, 1, voters, now)).records, (
        "it is another partition"
    )
    assert not at_once(cluster.controller.reassignments.finish(topic_id, 2, voters, now)).records
    assert not at_once(cluster.controller.reassignments.finish(UUID(int=9), 0, voters, now)).records
    assert cluster.topic("a").partitions[0].moving_from == (1, 2, 3)
    cluster.apply(cluster.controller.reassignments.finish(topic_id, 0, voters, now))
    assert not cluster.topic("a").partitions[0].is_reassigning
    assert not at_once(cluster.controller.reassignments.finish(topic_id, 0, voters, now)).records, (
        "it is said once"
    )


def test_what_a_leader_said_before_the_wish_was_another_one_counts_no_more() -> None:
    cluster = moving()
    topic_id = cluster.topic("a").topic_id
    image_end = cluster.image.end_offset
    before = cluster.topic("a").partitions
    voters = [ReplicaIdentity(*each) for each in before[0].identities]
    reassign(cluster, 1, 4)
    reassign(cluster, 1, 2, 3)
    assert cluster.topic("a").partitions[0].removing
    assert not at_once(cluster.controller.reassignments.finish(topic_id, 0, voters, image_end)).records
    assert at_once(
        cluster.controller.reassignments.finish(topic_id, 0, voters, cluster.image.end_offset)
    ).records
    assert cluster.image.assigned_at(topic_id, 1) <= image_end, (
        "the other partitions' targets are as they were"
    )


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 2, 9)])
def test_a_wish_that_nobody_can_fulfil_is_refused(replicas: tuple[int, ...]) -> None:
    cluster = moving()
    before = cluster.topic("a")
    assert reassign(cluster, *replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.topic("a") == before


def test_a_partition_does_not_move_to_where_no_majority_is_alive() -> None:
    cluster = moving()
    cluster.alive -= {directory(4), directory(5)}
    assert reassign(cluster, 1, 4, 5) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, 1, 2, 5) is ErrorCode.NONE


@pytest.mark.parametrize(("topic", "partition"), [("b", 0), ("a", 2), ("a", -1)])
def test_a_partition_that_is_not_there_cannot_move(topic: str, partition: int) -> None:
    assert reassign(moving(), 1, topic=topic, partition=partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_refused_partition_does_not_hold_up_the_others() -> None:
    cluster = moving()
    wanted = [Reassignment("a", 0, (9,)), Reassignment("a", 1, (5,)), Reassignment("a", 1, (4, 5))]
    results = cluster.apply(cluster.controller.reassignments.reassign(wanted))
    assert [result.error for result in results] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, 0, 0]
    first, second = cluster.topic("a").partitions
    assert first.replicas == (1, 2, 3) and second.replicas == (4, 5)
    assert [replica.node_id for replica in second.removing] == [1, 2, 3]
