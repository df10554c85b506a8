"""Questions to the controller reach it, and its answers come back, although links open and close meanwhile."""

from __future__ import annotations

from typing import Any

from broker.controller.client import TIMEOUT_S, ControllerClient, Done
from broker.scheduling.ticks import Ticks
from protocol import peer
from protocol.errors import ErrorCode
from tests.simulator.loop import new_loop


class Member:
    """One of two nodes: 1 is the controller and answers at once, 2 asks. Links are told up or down by the test."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.time_s = 0.0
        self.replayed = 0
        #: Where the decisions lie that this member gives as controller.
        self.decided = 0
        self.links: dict[int, bool] = {}
        self.sent: list[tuple[int, peer.PeerMessage]] = []
        self.client = ControllerClient(self, first_id=node_id * 1000, ticks=Ticks(new_loop()))

    def now(self) -> float:
        return self.time_s

    def controller_node(self) -> int:
        return 1

    def own_node(self) -> int:
        return self.node_id

    def image_end(self) -> int:
        return self.replayed

    def execute(self, operation: str, arguments: dict[str, Any], done: Done) -> None:
        done({"error_code": 0, "operation": operation, "image_end": self.decided})

    def is_connected(self, node_id: int) -> bool:
        return self.links.get(node_id, False)

    def send(self, node_id: int, message: peer.PeerMessage) -> None:
        if self.is_connected(node_id):
            self.sent.append((node_id, message))


def deliver(asker: Member, controller: Member) -> None:
    for _, message in asker.sent:
        assert isinstance(message, peer.Forward)
        controller.client.forwarded(asker.node_id, message)
    for _, message in controller.sent:
        assert isinstance(message, peer.ForwardReply)
        asker.client.reply(message)
    asker.sent, controller.sent = [], []


def test_a_question_waits_for_the_link_to_the_controller() -> None:
    controller, asker = Member(1), Member(2)
    controller.links[2] = True
    answers: list[dict[str, Any]] = []
    asker.client.call("register_broker", {}, answers.append)
    deliver(asker, controller)
    assert not answers

    asker.links[1] = True
    asker.client.tick(asker.time_s)
    deliver(asker, controller)
    assert [answer["operation"] for answer in answers] == ["register_broker"]


def test_an_answer_waits_for_the_link_to_the_asker() -> None:
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    answers: list[dict[str, Any]] = []
    asker.client.call("create_topics", {}, answers.append)
    deliver(asker, controller)
    assert not answers

    controller.links[2] = True
    controller.client.node_connected(2)
    deliver(asker, controller)
    assert [answer["operation"] for answer in answers] == ["create_topics"]


def test_an_answer_that_nobody_waits_for_any_more_is_forgotten() -> None:
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    answers: list[dict[str, Any]] = []
    asker.client.call("create_topics", {}, answers.append)
    deliver(asker, controller)
    for member in (asker, controller):
        member.time_s = TIMEOUT_S
        member.client.tick(member.time_s)
    assert [answer["error_code"] for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]

    controller.links[2] = True
    controller.client.node_connected(2)
    assert not controller.sent


def test_answers_to_a_node_that_asks_and_cannot_be_reached_do_not_pile_up() -> None:
    """Its link to us is open, ours to it is not, and it goes on asking: only what it still waits for is kept."""
    controller, asker = Member(1), Member(2)
    asker.links[1] = True
    for second in range(100):
        for member in (asker, controller):
            member.time_s = float(second)
            member.client.tick(member.time_s)
        asker.client.call("create_topics", {}, lambda answer: None)
        deliver(asker, controller)
    controller.links[2] = True
    controller.client.node_connected(2)
    assert len(controller.sent) == TIMEOUT_S


def asked_for_a_change_at_5() -> tuple[Member, list[dict[str, Any]]]:
    """Decided, committed, and the answer is here; the asker has replayed nothing."""
    controller, asker = Member(1), Member(2)
    controller.links[2] = asker.links[1] = True
    controller.decided = 5
    answers: list[dict[str, Any]] = []
    asker.client.call("alter_configs", {}, answers.append)
    deliver(asker, controller)
    return asker, answers


def test_an_answer_waits_until_the_asker_has_replayed_what_was_decided() -> None:
    asker, answers = asked_for_a_change_at_5()
    asker.replayed = 4
    asker.client.image_read()
    asker.client.answers_lost(1)
    asker.client.tick(asker.time_s)
    assert not answers and not asker.sent, "it is answered already, and not asked again"
    asker.replayed = 5
    asker.client.image_read()
    assert [answer["operation"] for answer in answers] == ["alter_configs"]


def test_an_answer_is_given_in_the_end_although_the_image_stands_still() -> None:
    asker, answers = asked_for_a_change_at_5()
    asker.time_s += TIMEOUT_S
    asker.client.tick(asker.time_s)
    assert [answer["error_code"] for answer in answers] == [0]


def test_a_question_to_a_node_goes_there_and_waits_for_its_link() -> None:
    controller, other = Member(1), Member(2)
    answers: list[dict[str, Any]] = []
    controller.client.call("hand_over", {}, answers.append, node_id=1)
    assert len(answers) == 1, "to itself"
    controller.client.call("hand_over", {}, answers.append, node_id=2)
    controller.links[2] = other.links[1] = True
    controller.client.tick(controller.time_s)
    for _, message in controller.sent:
        assert isinstance(message, peer.Forward)
        other.client.forwarded(1, message)
    for _, message in other.sent:
        assert isinstance(message, peer.ForwardReply)
        controller.client.reply(message)
    assert [answer["operation"] for answer in answers] == ["hand_over", "hand_over"]
