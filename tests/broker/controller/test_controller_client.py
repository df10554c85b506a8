"""Requests to the controller reach it, and its answers come back, although links open and close meanwhile."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.controller.server import TIMEOUT_S
from protocol import peer
from protocol.controller.brokers import AllocateProducerIds, AllocateProducerIdsResult
from protocol.controller.replicas import LedPartition, TransferLeadership, TransferLeadershipResult
from protocol.controller.topics import CreatedTopic, CreateMissingTopics, CreateTopicsResult
from protocol.errors import ErrorCode, KafkaError
from tests.broker.controller.members import Member, connect, deliver
from tests.protocol.controller_bodies import encode_result

Answers = list[AllocateProducerIdsResult | KafkaError]
BLOCK = AllocateProducerIdsResult(first=0, count=1000)


def codes(answers: Answers) -> list[ErrorCode]:
    return [each.code if isinstance(each, KafkaError) else ErrorCode.NONE for each in answers]


def test_a_request_waits_for_the_link_to_the_controller() -> None:
    controller, asker = Member(1), Member(2)
    controller.links[2] = True
    answers: Answers = []
    asker.client.call(AllocateProducerIds(), answers.append)
    deliver(asker, controller)
    assert not answers

    asker.links[1] = True
    asker.tick()
    deliver(asker, controller)
    assert answers == [BLOCK]


def test_an_answer_waits_for_the_link_to_the_asker() -> None:
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    answers: Answers = []
    asker.client.call(AllocateProducerIds(), answers.append)
    deliver(asker, controller)
    assert not answers

    controller.links[2] = True
    controller.server.node_connected(2)
    deliver(asker, controller)
    assert answers == [BLOCK]


def test_an_answer_that_nobody_waits_for_any_more_is_dropped() -> None:
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    answers: Answers = []
    asker.client.call(AllocateProducerIds(), answers.append)
    deliver(asker, controller)
    for member in (asker, controller):
        member.time_s = TIMEOUT_S
        member.tick()
    assert codes(answers) == [ErrorCode.REQUEST_TIMED_OUT]

    controller.links[2] = True
    controller.server.node_connected(2)
    assert not controller.sent


def test_answers_to_a_node_that_asks_and_cannot_be_reached_do_not_pile_up() -> None:
    """Its link to us is open, ours to it is not, and it goes on asking: only what it still waits for is kept."""
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    for second in range(100):
        for member in (asker, controller):
            member.time_s = float(second)
            member.tick()
        asker.client.call(AllocateProducerIds(), lambda answer: None)
        deliver(asker, controller)
    controller.links[2] = True
    controller.server.node_connected(2)
    assert len(controller.sent) == TIMEOUT_S


def asked_for_a_change_at_5() -> tuple[Member, Answers]:
    """Decided, committed, and the answer is here; the asker has replayed nothing."""
    controller, asker = Member(1), Member(2)
    connect(controller, asker)
    controller.decided = 5
    answers: Answers = []
    asker.client.call(AllocateProducerIds(), answers.append)
    deliver(asker, controller)
    return asker, answers


def test_an_answer_waits_until_the_asker_has_replayed_what_was_decided() -> None:
    asker, answers = asked_for_a_change_at_5()
    asker.replayed = 4
    asker.client.image_read()
    asker.client.answers_lost(1)
    asker.tick()
    assert not answers and not asker.sent, "it is answered already, and not asked again"
    asker.replayed = 5
    asker.client.image_read()
    assert answers == [BLOCK]


def test_an_answer_is_given_in_the_end_although_the_image_stands_still() -> None:
    asker, answers = asked_for_a_change_at_5()
    asker.time_s += TIMEOUT_S
    asker.tick()
    assert answers == [BLOCK]


def asked_to_catch_up_with_5() -> tuple[Member, list[bool]]:
    """The controller has answered; the asker has replayed nothing."""
    controller, asker = Member(1), Member(2)
    connect(controller, asker)
    controller.decided = 5
    answers: list[bool] = []
    asker.client.catch_up(answers.append)
    deliver(asker, controller)
    return asker, answers


def test_an_image_has_caught_up_when_it_shows_what_was_committed() -> None:
    asker, answers = asked_to_catch_up_with_5()
    assert not answers
    asker.replayed = 5
    asker.client.image_read()
    assert answers == [True]


def test_an_image_that_stands_still_has_not_caught_up_although_the_controller_has_answered() -> None:
    asker, answers = asked_to_catch_up_with_5()
    asker.time_s += TIMEOUT_S
    asker.tick()
    assert answers == [False]


def test_a_request_to_a_node_goes_there_and_waits_for_its_link() -> None:
    controller, other = Member(1), Member(2)
    request = TransferLeadership(partitions=[LedPartition(topic_id=UUID(int=7), partition=3)])
    answers: list[TransferLeadershipResult | KafkaError] = []
    controller.client.call(request, answers.append, node_id=1)
    assert len(answers) == 1, "to itself"
    controller.client.call(request, answers.append, node_id=2)
    connect(controller, other)
    controller.tick()
    deliver(controller, other)
    assert answers == [TransferLeadershipResult(error_codes=[0])] * 2


# -- large requests and answers, in steps -----------------------------------------------------------------------

NAMES = [f"t{number}" for number in range(2000)]
CREATED = CreateTopicsResult(topics=[CreatedTopic(name=name) for name in NAMES])
Created = list[CreateTopicsResult | KafkaError]


def asked_for_many() -> tuple[Member, Created]:
    """The request is being encoded."""
    asker = Member(2)
    asker.links[1] = asker.is_slow = True
    answers: Created = []
    asker.client.call(CreateMissingTopics(names=NAMES), answers.append)
    assert not asker.sent
    return asker, answers


def answered_about_many() -> tuple[Member, Created, int]:
    """The answer is being decoded."""
    asker, answers = asked_for_many()
    asker.loop.run_for(0.1)
    ((_, request),) = asker.sent
    asker.sent.clear()
    assert isinstance(request, peer.ControllerRequest)
    body = encode_result(CREATED)
    asker.client.response_received(peer.ControllerResponse(request_id=request.request_id, body=body))
    assert not answers
    return asker, answers, request.request_id


def test_a_large_request_is_sent_once_although_the_link_is_lost_while_it_is_encoded() -> None:
    asker, _ = asked_for_many()
    asker.client.answers_lost(1)
    asker.tick()
    asker.loop.run_for(0.1)
    assert len(asker.sent) == 1


def test_a_large_request_waits_for_the_link_that_is_lost_while_it_is_encoded() -> None:
    asker, _ = asked_for_many()
    asker.links[1] = False
    asker.client.answers_lost(1)
    asker.loop.run_for(0.1)
    asker.links[1] = True
    assert not asker.sent
    asker.tick()
    asker.loop.run_for(0.1)
    assert len(asker.sent) == 1


def test_a_large_request_whose_time_is_over_while_it_is_encoded_is_not_sent() -> None:
    asker, answers = asked_for_many()
    asker.time_s += TIMEOUT_S
    asker.tick()
    asker.loop.run_for(0.1)
    assert len(answers) == 1 and not asker.sent


def test_the_first_answer_counts_while_it_is_decoded() -> None:
    asker, answers, request_id = answered_about_many()
    refused = peer.ControllerResponse(request_id=request_id, error_code=ErrorCode.NOT_CONTROLLER)
    asker.client.response_received(refused)
    asker.client.answers_lost(1)
    asker.tick()
    asker.loop.run_for(0.1)
    assert answers == [CREATED] and not asker.sent


def test_an_answer_that_is_decoded_too_late_is_dropped() -> None:
    asker, answers, _ = answered_about_many()
    asker.time_s += TIMEOUT_S
    asker.tick()
    asker.loop.run_for(0.1)
    (answer,) = answers
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.REQUEST_TIMED_OUT


# -- answers that cannot be read ------------------------------------------------------------------------------


def transfer_of_two_partitions() -> TransferLeadership:
    return TransferLeadership(partitions=[LedPartition(topic_id=UUID(int=7), partition=x) for x in (0, 1)])


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"\x04\0\0",
        b"\xff" * 9,
        encode_result(TransferLeadershipResult(error_codes=[0, 0])) + b"\0",
        encode_result(TransferLeadershipResult(error_codes=[0])),
        encode_result(AllocateProducerIdsResult(first=0, count=1000)),
        b'{"error_code": 0}',
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_the_request(body: bytes | None) -> None:
    """Null, cut short, of something else, with too few items: whoever asked is told, and goes on."""
    asker, other = Member(1), Member(2)
    connect(asker, other)
    answers: list[TransferLeadershipResult | KafkaError] = []
    asker.client.call(transfer_of_two_partitions(), answers.append, node_id=2)
    ((_, request),) = asker.sent
    assert isinstance(request, peer.ControllerRequest)
    asker.client.response_received(peer.ControllerResponse(request_id=request.request_id, body=body))
    (answer,) = answers
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_of_a_newer_node_is_an_unknown_error() -> None:
    asker, other = Member(1), Member(2)
    connect(asker, other)
    answers: list[TransferLeadershipResult | KafkaError] = []
    asker.client.call(transfer_of_two_partitions(), answers.append, node_id=2)
    ((_, request),) = asker.sent
    assert isinstance(request, peer.ControllerRequest)
    asker.client.response_received(
        peer.ControllerResponse(request_id=request.request_id, error_code=999, error_message="new")
    )
    (answer,) = answers
    assert isinstance(answer, KafkaError)
    assert (answer.code, answer.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, "new")


def test_a_request_that_is_asked_once_is_given_up_where_another_one_would_wait() -> None:
    """The other node is not connected; or the link to it is lost, and the answer with it."""
    controller, asker = Member(1), Member(2)
    answers: Answers = []
    asker.client.call_once(AllocateProducerIds(), answers.append, 1)
    assert codes(answers) == [ErrorCode.NETWORK_EXCEPTION]
    connect(controller, asker)
    asker.client.call_once(AllocateProducerIds(), answers.append, 1)
    asker.client.answers_lost(1)
    assert codes(answers) == [ErrorCode.NETWORK_EXCEPTION] * 2
    deliver(asker, controller)
    asker.tick()
    assert len(answers) == 2 and not asker.sent, "the late answer is nobody's"
    asker.client.call_once(AllocateProducerIds(), answers.append, 1)
    deliver(asker, controller)
    assert answers[2] == BLOCK
