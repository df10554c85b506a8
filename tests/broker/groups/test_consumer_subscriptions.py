"""What members of the consumer protocol (KIP-848) subscribe to, by name or by expression, and who assigns it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.config.sources import load
from broker.config.values import ConfigError
from broker.groups.assignors import ASSIGNORS
from broker.groups.consumer_requests import HeartbeatRequest
from protocol.errors import ErrorCode
from tests.broker.groups.consumers import GROUP, Consumer, Coordinator, Topics, joining, settle

# -- topics ------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_grows_or_goes_is_noticed_with_the_next_heartbeat(
    topics: Topics, coordinator: Coordinator
) -> None:
    a = Consumer(coordinator, "a", "t", "later")
    a.heartbeat()
    coordinator.pass_time(1)
    later = topics.set("later", 2)
    a.heartbeat()
    assert {number for topic_id, number in a.owned if topic_id == later} == {0, 1}
    coordinator.pass_time(1)
    topics.set("t", 6)
    a.heartbeat()
    assert len(a.owned) == 8
    coordinator.pass_time(1)
    topics.delete("t")
    a.heartbeat()
    assert {topic_id for topic_id, _ in a.owned} == {later}
    epoch = coordinator.describe().epoch
    topics.set("other", 1)
    assert a.heartbeat().assignment is None
    assert coordinator.describe().epoch == epoch, "nobody is subscribed to it"


def test_a_topic_that_is_made_anew_is_another_one(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    topics.delete("t")
    topic_id = topics.set("t", 4)
    settle(a)
    assert {each for each, _ in a.owned} == {topic_id}


def test_a_member_that_subscribes_to_other_topics_is_answered_at_once(
    topics: Topics, coordinator: Coordinator
) -> None:
    other = topics.set("u", 2)
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    answer = coordinator.ask(
        HeartbeatRequest(GROUP, "a", 1, client_id="c", client_host="/h", topic_names=("u",))
    )
    assert answer.assignment == {}, "t is to be given up first"
    answer = coordinator.ask(HeartbeatRequest(GROUP, "a", 1, client_id="c", client_host="/h", owned={}))
    assert answer.assignment == {other: frozenset({0, 1})}
    assert not coordinator.group.subscribed_among({"t"})
    assert coordinator.group.subscribed_among({"u"})


# -- expressions -------------------------------------------------------------------------------------------------


def test_expressions_follow_the_topics(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", regex="log-.*")
    answer = a.heartbeat()
    assert (answer.assignment, answer.heartbeat_interval_ms) == ({}, 500)
    coordinator.pass_time(1)
    logs = [topics.set(name, 1) for name in ("log-1", "log-2")]
    topics.set("blog-1", 1)
    assert a.heartbeat().heartbeat_interval_ms == 500, (
        "topics that are new are matched behind the answer, too"
    )
    coordinator.pass_time(0)
    a.heartbeat()
    assert {topic_id for topic_id, _ in a.owned} == set(logs)
    assert coordinator.group.subscribed_among({"log-2"})
    assert coordinator.describe().members[0].subscription.topic_regex == "log-.*"
    topics.set("log-3", 1)
    assert a.heartbeat().assignment is None, "not more than once in a second"
    coordinator.pass_time(1)
    a.heartbeat()
    coordinator.pass_time(0)
    a.heartbeat()
    assert len(a.owned) == 3
    coordinator.fail_over()
    coordinator.pass_time(1)
    assert a.heartbeat().assignment is None, "what matched is remembered"
    a.leave()
    coordinator.fail_over()
    assert not coordinator.group.subscribed_among({"log-1"}), "nobody uses the expression"


def test_a_new_expression_is_matched_behind_the_answer(topics: Topics, coordinator: Coordinator) -> None:
    """Topics by name come first, as in Kafka: matching takes a time that no member should wait for."""
    log = topics.set("log-1", 1)
    a = Consumer(coordinator, "a", "t", regex="log-.*")
    a.heartbeat()
    assert {topic_id for topic_id, _ in a.owned} == {topics.set("t", 4)}
    coordinator.fail_over()
    coordinator.pass_time(0)
    a.heartbeat()
    assert log in {topic_id for topic_id, _ in a.owned}


def test_an_expression_that_comes_back_with_another_member_is_matched_again(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", regex="t"), Consumer(coordinator, "b", regex="t")
    a.heartbeat()
    settle(a)
    a.leave()
    b.heartbeat()
    settle(b)
    assert len(b.owned) == 4


# -- assignors ---------------------------------------------------------------------------------------------------


def test_the_assignor_is_the_one_that_most_members_want(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t", assignor="range")
    a.heartbeat()
    assert coordinator.describe().assignor == "range"
    for member_id in ("b", "c"):
        coordinator.pass_time(1)
        Consumer(coordinator, member_id, "t", assignor="uniform").heartbeat()
    assert coordinator.describe().assignor == "uniform"


def test_members_are_assigned_by_what_the_node_offers(topics: Topics) -> None:
    coordinator = Coordinator(topics, group_consumer_assignors="range")
    topics.set("t", 2)
    assert coordinator.ask(joining(server_assignor="uniform")).error == ErrorCode.UNSUPPORTED_ASSIGNOR
    Consumer(coordinator, "a", "t").heartbeat()
    assert coordinator.describe().assignor == "range", "the first, as nobody asks for one"


def test_who_asked_for_what_is_offered_no_more_has_no_vote(topics: Topics) -> None:
    coordinator = Coordinator(topics)
    topics.set("t", 2)
    Consumer(coordinator, "a", "t", assignor="range").heartbeat()
    coordinator.config = replace(coordinator.config, consumer_assignors=("uniform",))
    coordinator.fail_over()
    assert coordinator.describe().assignor == "uniform"


def test_a_node_offers_all_assignors_that_there_are_and_at_least_one() -> None:
    assert load(flags={}).config.consumer_assignors == tuple(ASSIGNORS)
    with pytest.raises(ConfigError, match="at least one of uniform, range"):
        load(flags={"group.consumer.assignors": " "})
