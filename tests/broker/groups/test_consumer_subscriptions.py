"""Subscriptions of consumer groups (KIP-848) by name and by expression, and their assignors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.config.sources import load
from broker.config.values import ConfigError
from broker.groups.assignors import ASSIGNORS
from broker.groups.consumer_requests import HeartbeatRequest
from protocol.codec import at_once
from protocol.errors import ErrorCode
from tests.broker.groups.consumers import (
    GROUP,
    Consumer,
    Coordinator,
    Topics,
    joining,
    send_heartbeats_until_stable,
)

# -- topics ------------------------------------------------------------------------------------------------------


def test_created_deleted_and_growing_topics_are_noticed_in_the_next_heartbeat(
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


def test_a_topic_that_is_created_again_is_another_topic(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    topics.delete("t")
    topic_id = topics.set("t", 4)
    send_heartbeats_until_stable(a)
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
    assert not at_once(coordinator.group.subscribed_among({"t"}))
    assert at_once(coordinator.group.subscribed_among({"u"}))


# -- expressions -------------------------------------------------------------------------------------------------


def test_expressions_are_matched_again_when_topics_change(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", regex="log-.*")
    answer = a.heartbeat()
    assert (answer.assignment, answer.heartbeat_interval_ms) == ({}, 500)
    coordinator.pass_time(1)
    logs = [topics.set(name, 1) for name in ("log-1", "log-2")]
    topics.set("blog-1", 1)
    assert a.heartbeat().heartbeat_interval_ms == 500, "new topics are matched behind the answer, too"
    coordinator.pass_time(0)
    a.heartbeat()
    assert {topic_id for topic_id, _ in a.owned} == set(logs)
    assert at_once(coordinator.group.subscribed_among({"log-2"}))
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
    assert a.heartbeat().assignment is None, "the matched topics are in the log"
    a.leave()
    coordinator.fail_over()
    assert not at_once(coordinator.group.subscribed_among({"log-1"})), "nobody uses the expression any more"


def test_a_new_expression_is_matched_behind_the_answer(topics: Topics, coordinator: Coordinator) -> None:
    """As in Kafka, the answer holds the topics by name. No member should wait for the matching."""
    log = topics.set("log-1", 1)
    a = Consumer(coordinator, "a", "t", regex="log-.*")
    a.heartbeat()
    assert {topic_id for topic_id, _ in a.owned} == {topics.set("t", 4)}
    coordinator.fail_over()
    coordinator.pass_time(0)
    a.heartbeat()
    assert log in {topic_id for topic_id, _ in a.owned}


def test_an_expression_that_another_member_uses_later_is_matched_again(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", regex="t"), Consumer(coordinator, "b", regex="t")
    a.heartbeat()
    send_heartbeats_until_stable(a)
    a.leave()
    b.heartbeat()
    send_heartbeats_until_stable(b)
    assert len(b.owned) == 4


# -- assignors ---------------------------------------------------------------------------------------------------


def test_the_assignor_is_the_one_that_most_members_ask_for(topics: Topics, coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t", assignor="range")
    a.heartbeat()
    assert coordinator.describe().assignor == "range"
    for member_id in ("b", "c"):
        coordinator.pass_time(1)
        Consumer(coordinator, member_id, "t", assignor="uniform").heartbeat()
    assert coordinator.describe().assignor == "uniform"


def test_only_offered_assignors_are_used(topics: Topics) -> None:
    coordinator = Coordinator(topics, group_consumer_assignors="range")
    topics.set("t", 2)
    assert coordinator.ask(joining(server_assignor="uniform")).error == ErrorCode.UNSUPPORTED_ASSIGNOR
    Consumer(coordinator, "a", "t").heartbeat()
    assert coordinator.describe().assignor == "range", "the first one, because nobody asks for one"


def test_a_vote_for_an_assignor_that_is_not_offered_any_more_does_not_count(topics: Topics) -> None:
    coordinator = Coordinator(topics)
    topics.set("t", 2)
    Consumer(coordinator, "a", "t", assignor="range").heartbeat()
    coordinator.config = replace(coordinator.config, consumer_assignors=("uniform",))
    coordinator.fail_over()
    assert coordinator.describe().assignor == "uniform"


def test_a_node_offers_all_assignors_by_default_and_at_least_one() -> None:
    assert load(flags={}).config.consumer_assignors == tuple(ASSIGNORS)
    with pytest.raises(ConfigError, match="at least one of uniform, range"):
        load(flags={"group.consumer.assignors": " "})
