"""The machine of the consumer protocol (KIP-848). The error codes are those of Apache Kafka 4.3, which was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.config.sources import load
from broker.config.values import ConfigError
from broker.groups import consumer_draft, consumer_subscriptions
from broker.groups.assignors import ASSIGNORS
from broker.groups.consumer_requests import HeartbeatRequest
from broker.groups.topic_pattern import TopicPattern
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.consumers import GROUP, Consumer, Coordinator, Topics, partitions_of, settle


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.set("t", 4)
    return topics


@pytest.fixture
def coordinator(topics: Topics) -> Coordinator:
    return Coordinator(topics)


def joining(**changes: object) -> HeartbeatRequest:
    request: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topic_names": ("t",),
        "owned": {},
    }
    return HeartbeatRequest(**{**request, **changes})  # type: ignore[arg-type]


# -- members come and go -----------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    answer = a.heartbeat()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert len(a.owned) == 4
    assert coordinator.describe().state == "Stable"
    records = len(coordinator.log)
    assert a.heartbeat().assignment is None, "told once"
    assert len(coordinator.log) == records, "a heartbeat without news writes nothing"


def test_the_second_member_gets_what_the_first_has_given_up(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    answer = b.heartbeat()
    assert answer.assignment == {}, "nothing is free yet"
    assert answer.heartbeat_interval_ms == 500, "it is to come back soon"
    assert (b.epoch, coordinator.describe().state) == (2, "Reconciling")
    answer = a.heartbeat()
    assert answer.member_epoch == 1, "it has to give up two and stays in its epoch until then"
    assert answer.assignment is not None
    assert len(partitions_of(answer.assignment)) == 2
    b.heartbeat()
    assert not b.owned, "a has not said yet that it gave them up"
    assert a.heartbeat().member_epoch == 2
    assert b.heartbeat().heartbeat_interval_ms == 5000
    assert (len(a.owned), len(b.owned)) == (2, 2)
    assert coordinator.describe().state == "Stable"


def test_members_whose_partitions_stay_notice_a_new_epoch_and_nothing_else(coordinator: Coordinator) -> None:
    """A third member takes one partition from one of two; the other goes on."""
    a, b, c = (Consumer(coordinator, each, "t") for each in "abc")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    settle(a, b)
    kept = {each.member_id: set(each.owned) for each in (a, b)}
    coordinator.pass_time(1)
    c.heartbeat()
    answers = {each.member_id: each.heartbeat() for each in (a, b)}
    assert sorted(answer.assignment is None for answer in answers.values()) == [False, True]
    (untouched,) = (each for each in (a, b) if answers[each.member_id].assignment is None)
    assert untouched.epoch == 3
    assert untouched.owned == kept[untouched.member_id]
    settle(a, b, c)
    assert sorted(len(each.owned) for each in (a, b, c)) == [1, 1, 2]


def test_what_a_member_that_left_had_goes_to_the_others_with_their_next_heartbeat(
    coordinator: Coordinator,
) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    settle(a, b)
    answer = b.leave()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "b", -1)
    assert coordinator.describe().state == "Assigning"
    coordinator.pass_time(1)
    a.heartbeat()
    assert len(a.owned) == 4
    assert a.leave().error == ErrorCode.NONE
    assert coordinator.describe().state == "Empty"
    assert coordinator.shard.next_deadline() is None


def test_many_members_that_join_together_cost_one_assignment(topics: Topics) -> None:
    topics.set("t", 200)
    coordinator = Coordinator(topics)
    consumers = [Consumer(coordinator, f"m{number}", "t") for number in range(50)]
    for consumer in consumers:
        consumer.heartbeat()
    assert coordinator.describe().assignment_epoch == 1
    coordinator.pass_time(1)
    described = coordinator.describe()
    assert described.assignment_epoch == described.epoch == 50
    settle(*consumers)
    assert {len(consumer.owned) for consumer in consumers} == {4}


def test_a_member_that_is_not_heard_is_put_out(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    settle(a, b)
    for _ in range(10):
        coordinator.pass_time(4.9)
        a.heartbeat()
    assert list(coordinator.group.members) == ["a"]
    assert len(a.owned) == 4
    assert b.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_members_that_are_not_heard_are_put_out_in_decisions_of_a_batch_each(
    coordinator: Coordinator,
) -> None:
    for number in range(250):
        Consumer(coordinator, f"{number:03}", "t").heartbeat()
    coordinator.fail_over()  # all sessions end at the same moment
    coordinator.now = coordinator.shard.next_deadline() or 0
    left = []
    while not coordinator.group.is_empty:
        coordinator.expire()
        left.append(len(coordinator.group.members))
    assert left == [150, 50, 0]


def test_a_member_that_keeps_what_it_was_to_give_up_is_put_out(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t", rebalance_timeout_ms=10_000), Consumer(coordinator, "b", "t")
    a.heartbeat()
    a.is_slow = True
    coordinator.pass_time(1)
    for _ in range(3):
        b.heartbeat()
        a.heartbeat()
        coordinator.pass_time(4)
    b.heartbeat()
    assert list(coordinator.group.members) == ["b"]
    assert len(b.owned) == 4
    assert a.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_other_partitions_to_give_up_have_a_time_of_their_own(
    topics: Topics, coordinator: Coordinator
) -> None:
    topics.set("t", 6)
    a, b = Consumer(coordinator, "a", "t", rebalance_timeout_ms=10_000), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    a.heartbeat()  # it is to give up two, and does
    coordinator.pass_time(9)
    c = Consumer(coordinator, "c", "t")
    c.heartbeat()
    assert a.has_revoked
    assert a.heartbeat().member_epoch == 1, "now it is to give up another one"
    coordinator.pass_time(9)
    assert a.heartbeat().error == ErrorCode.NONE
    settle(a, b, c)


def test_a_groups_own_settings_count_from_the_next_heartbeat(
    topics: Topics, coordinator: Coordinator
) -> None:
    a = Consumer(coordinator, "a", "t")
    assert a.heartbeat().heartbeat_interval_ms == 5000
    topics.configure_group(consumer_heartbeat_interval_ms=1000, consumer_session_timeout_ms=3000)
    assert a.heartbeat().heartbeat_interval_ms == 1000
    coordinator.pass_time(2.9)
    assert not coordinator.group.is_empty
    coordinator.pass_time(0.2)
    assert coordinator.group.is_empty


def test_a_group_is_full(topics: Topics) -> None:
    coordinator = Coordinator(topics, group_consumer_max_size=1)
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    assert Consumer(coordinator, "b", "t").heartbeat().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    a.epoch, a.owned = 0, set()
    assert a.heartbeat().error == ErrorCode.NONE, "it is a member already"


def test_a_group_whose_target_would_not_fit_into_a_batch_is_full(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_draft, "MAX_TARGET_IDS_BYTES", 3000)
    a, b = (Consumer(coordinator, each * 1000, "t", instance_id=each) for each in "ab")
    for member in (a, b):
        assert member.heartbeat().error == ErrorCode.NONE
    records = len(coordinator.log)
    assert Consumer(coordinator, "c" * 1000, "t").heartbeat().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(coordinator.log) == records
    a.epoch, a.owned = 0, set()
    assert a.heartbeat().error == ErrorCode.NONE, "it is a member already"
    b.leave(-2)
    assert Consumer(coordinator, "B" * 1000, "t", instance_id="b").heartbeat().error == ErrorCode.NONE, (
        "it takes another one's place"
    )


# -- epochs ------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_may_come_once_more_with_its_old_epoch(
    coordinator: Coordinator,
) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    a.heartbeat()
    a.heartbeat(lose_answer=True)  # it is in epoch 2 now, and does not know
    assert a.epoch == 1
    answer = a.heartbeat()
    assert answer.member_epoch == 2
    assert answer.assignment is not None, "what it has may have been in the answer that was lost"


def test_other_epochs_are_fenced(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    for epoch in (2, 9):
        answer = coordinator.ask(HeartbeatRequest(GROUP, "a", epoch))
        assert answer.error == ErrorCode.FENCED_MEMBER_EPOCH
        assert answer.message
    coordinator.pass_time(1)
    b = Consumer(coordinator, "b", "t")
    b.heartbeat()
    settle(a, b)
    assert a.epoch == 2
    silent = coordinator.ask(HeartbeatRequest(GROUP, "a", 1))
    assert silent.error == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    topic_id, number = next(iter(b.owned))
    foreign = coordinator.ask(HeartbeatRequest(GROUP, "a", 1, owned={topic_id: frozenset({number})}))
    assert foreign.error == ErrorCode.FENCED_MEMBER_EPOCH, "it owns what is somebody else's"


def test_who_joins_again_is_told_what_it_has(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    a.epoch, a.owned = 0, set()
    answer = a.heartbeat()
    assert (answer.member_epoch, len(a.owned)) == (1, 4)


def test_who_says_everything_is_told_everything(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    owned = a._owned_by_topic()
    answer = coordinator.ask(joining(member_epoch=1, owned=owned))
    assert answer.assignment == owned


def test_commits_and_fetches_of_members(coordinator: Coordinator) -> None:
    group_checks = [
        ("a", 1, None),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    for member_id, epoch, expected in group_checks:
        assert refusal(coordinator.group.check_commit, member_id, None, epoch, 0.0) == expected
        assert refusal(coordinator.group.check_fetch, member_id, epoch) == expected
    assert refusal(coordinator.group.check_fetch, None, -1) is None
    a.leave()
    assert refusal(coordinator.group.check_commit, "", None, -1, 0.0) is None, (
        "from outside, into an empty group"
    )
    assert refusal(coordinator.group.check_commit, "a", None, 1, 0.0) == ErrorCode.UNKNOWN_MEMBER_ID


# -- requests that are none --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": {Topics().set("t", 1): frozenset({0})}}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * 1001}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "ü" * 501}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "x" * 1001}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": ("x" * 250,)}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": tuple(map(str, range(10_001)))}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"topic_names": None, "topic_regex": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    coordinator: Coordinator, changes: dict[str, object], error: ErrorCode
) -> None:
    answer = coordinator.ask(joining(**changes))
    assert (answer.error, answer.member_id, answer.assignment) == (error, None, None)
    assert answer.message
    assert not coordinator.log
    assert not coordinator.shard.groups


# -- subscriptions and topics ------------------------------------------------------------------------------------


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


def test_expressions_are_matched_a_piece_at_a_time_and_never_in_a_heartbeat(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any number: after a fail-over thirty of them once held the loop for eight seconds."""
    spent: list[int] = []
    matches = TopicPattern.matches

    def counted(pattern: TopicPattern, name: str) -> bool:
        before = pattern.work
        try:
            return matches(pattern, name)
        finally:
            spent[-1] += pattern.work - before

    monkeypatch.setattr(TopicPattern, "matches", counted)
    monkeypatch.setattr(consumer_subscriptions, "MAX_WORK", 1000)
    for number in range(20):
        topics.set(f"log-{number * 7919 % 97:02}-{'x' * 20}", 1)
    consumers = [Consumer(coordinator, f"m{number}", regex=f"(?:.?){{40}}|{number}") for number in range(5)]
    for _ in range(2):
        spent.append(0)
        for consumer in consumers:
            assert consumer.heartbeat().error == ErrorCode.NONE
        assert spent.pop() == 0, "in heartbeats"
        while (deadline := coordinator.group._match_at) is not None:
            coordinator.now = deadline
            spent.append(0)
            coordinator.expire()
        settle(*consumers)
        assert sum(len(consumer.owned) for consumer in consumers) == 24
        coordinator.fail_over()
    assert len(spent) > 10
    assert max(spent) < 3500, "and the rest of a name"


def test_topics_of_expressions_are_written_a_piece_at_a_time(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a decision there is no more than a batch has room for."""
    monkeypatch.setattr(consumer_subscriptions, "MAX_CHANGED_BYTES", 1000)
    for number in range(10):
        topics.set(f"{number}-" + "x" * 100, 1)
    consumers = [Consumer(coordinator, f"m{number}", regex=f".*|{number}") for number in range(5)]
    for consumer in consumers:
        consumer.heartbeat()
    while coordinator.group._match_at is not None:
        coordinator.now = coordinator.group._match_at
        records = len(coordinator.log)
        coordinator.expire()
        assert len(coordinator.log) <= records + 2, "one expression, and the group's epoch"
    settle(*consumers)
    assert sum(len(consumer.owned) for consumer in consumers) == 14


def test_an_expression_that_comes_back_with_another_member_is_matched_again(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", regex="t"), Consumer(coordinator, "b", regex="t")
    a.heartbeat()
    settle(a)
    a.leave()
    b.heartbeat()
    settle(b)
    assert len(b.owned) == 4


def test_an_expression_that_is_too_much_work_keeps_its_topics(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = Consumer(coordinator, "a", regex="t|(?:.?){40}"), Consumer(coordinator, "b", regex="u.*")
    a.heartbeat()
    b.heartbeat()
    coordinator.pass_time(1)
    settle(a, b)
    assert len(a.owned) == 4
    monkeypatch.setattr(consumer_subscriptions, "MAX_PATTERN_WORK", 1000)
    topics.set("u-" + "".join(map(chr, range(97, 123))), 3)
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (4, 3), "and the others have their turn"


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


# -- static members ----------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t", instance_id="i"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    b.heartbeat()
    settle(a, b)
    owned = set(a.owned)
    epoch = coordinator.describe().epoch
    assert a.leave(-2).member_epoch == -2
    b.heartbeat()
    assert len(b.owned) == 2, "its partitions wait for it"
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", 2, "i")).error == ErrorCode.FENCED_MEMBER_EPOCH
    back = Consumer(coordinator, "a2", "t", instance_id="i")
    back.heartbeat()
    assert (back.owned, back.epoch, coordinator.describe().epoch) == (owned, epoch, epoch)
    assert set(coordinator.group.members) == {"a2", "b"}
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", 2, "i")).error == ErrorCode.FENCED_INSTANCE_ID
    coordinator.fail_over()
    assert back.heartbeat().error == ErrorCode.NONE


def test_a_static_member_that_stays_away_is_put_out(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t", instance_id="i")
    a.heartbeat()
    a.leave(-2)
    coordinator.pass_time(44)
    assert len(coordinator.group.members) == 1
    coordinator.pass_time(2)
    assert coordinator.group.is_empty


def test_an_instance_is_one_member_at_a_time(coordinator: Coordinator) -> None:
    Consumer(coordinator, "a", "t", instance_id="i").heartbeat()
    b = Consumer(coordinator, "b", "t", instance_id="i")
    assert b.heartbeat().error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert b.leave(-2).error == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "b", 1, "i")).error == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "b", 1, "j")).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", -1, "i")).error == ErrorCode.NONE
    assert b.heartbeat().error == ErrorCode.NONE


# -- the log -----------------------------------------------------------------------------------------------------


def test_another_coordinator_goes_on_where_this_one_was(coordinator: Coordinator) -> None:
    """In the middle of a rebalance: one has to give up, one waits."""
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    a.is_slow = True
    coordinator.pass_time(1)
    b.heartbeat()
    a.heartbeat()
    before = coordinator.describe()
    coordinator.fail_over()
    after = coordinator.describe()
    assert {each.member_id: each for each in after.members} == {
        each.member_id: each for each in before.members
    }
    assert (after.state, after.epoch, after.assignment_epoch) == (
        "Reconciling",
        before.epoch,
        before.assignment_epoch,
    )
    a.heartbeat()
    b.heartbeat()
    assert not b.owned
    a.is_slow = False
    a._take(a.heartbeat())
    a.has_revoked, a.owned = True, set(a.wanted)
    settle(a, b)
    assert (len(a.owned), len(b.owned)) == (2, 2)


def test_members_have_their_whole_session_after_a_fail_over(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    coordinator.pass_time(40)
    coordinator.fail_over()
    coordinator.pass_time(44)
    assert a.heartbeat().error == ErrorCode.NONE
    coordinator.fail_over()
    coordinator.pass_time(46)
    assert a.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_group_leaves_nothing(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", regex="t")
    a.heartbeat()
    a.leave()
    coordinator._carry_out(coordinator.shard.delete_group("ticket", GROUP))
    assert not coordinator.shard.groups
    coordinator.fail_over()
    assert not coordinator.shard.groups


def refusal(check: Callable[..., object], *arguments: object) -> ErrorCode | None:
    try:
        check(*arguments)
    except KafkaError as error:
        return error.code
    return None
