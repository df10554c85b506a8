"""What another node asks is carried out or refused, whatever it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from protocol import peer
from protocol.controller.brokers import (
    AllocateProducerIds,
    AllocateProducerIdsResult,
    RegisterBroker,
    RenewReplicas,
)
from protocol.controller.operations import OPERATIONS
from protocol.controller.request import Request
from protocol.controller.topics import CreateMissingTopics, CreateTopicsResult
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.broker.controller.members import Member, connect
from tests.broker.world import running
from tests.protocol.controller_bodies import decode_result, encode_request, encode_result

TRANSFER = next(number for number, (cls, _) in OPERATIONS.items() if cls.__name__ == "TransferLeadership")
CREATE, NAMES = encode_request(CreateMissingTopics(names=["foo", "bar"]))
ALLOCATE, EMPTY = encode_request(AllocateProducerIds())
FOREIGN = [
    (CREATE, None),
    (CREATE, b""),
    (CREATE, NAMES[:-1]),
    (CREATE, NAMES + b"\0"),
    (CREATE, b"\xff" * 9),
    (CREATE, b'{"operation": "create_topics", "arguments": {}}'),
    (ALLOCATE, NAMES),
    (TRANSFER, b"\xff\xff\xff\xff\x07"),
]


def response_to(operation: int, body: bytes | None) -> peer.ControllerResponse:
    controller, asker = Member(1), Member(2)
    connect(controller, asker)
    message = peer.ControllerRequest(request_id=5, operation=operation, body=body)
    controller.server.request_received(asker.identity, message)
    ((node_id, response),) = controller.sent
    assert isinstance(response, peer.ControllerResponse)
    assert (node_id, response.request_id) == (2, 5)
    return response


def test_a_request_is_carried_out() -> None:
    response = response_to(ALLOCATE, EMPTY)
    assert response.error_code == ErrorCode.NONE and response.body is not None


def test_a_large_request_is_decoded_in_steps() -> None:
    controller, asker = Member(1), Member(2)
    connect(controller, asker)
    controller.is_slow = True
    operation, body = encode_request(CreateMissingTopics(names=[f"t{number}" for number in range(2000)]))
    controller.server.request_received(
        asker.identity, peer.ControllerRequest(request_id=5, operation=operation, body=body)
    )
    assert not controller.sent
    controller.loop.run_for(0.1)
    assert len(controller.sent) == 1


@pytest.mark.parametrize(("operation", "body"), FOREIGN)
def test_a_body_that_cannot_be_read_is_refused(operation: int, body: bytes | None) -> None:
    response = response_to(operation, body)
    assert response.error_code == ErrorCode.INVALID_REQUEST and response.error_message
    assert response.body is None


@pytest.mark.parametrize("operation", [-1, 0, max(OPERATIONS) + 1])
def test_an_operation_of_a_newer_node_is_refused(operation: int) -> None:
    assert response_to(operation, EMPTY).error_code == ErrorCode.UNSUPPORTED_VERSION


REGISTERED = RegisterBroker(
    cluster_id="a cluster", node_id=2, directory_id=UUID(int=2), boot_id=UUID(int=2000 << 66), endpoints=[],
    peer_host="n2", peer_port=9093, metadata_incarnation=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (REGISTERED, {"node_id": 3}),
        (REGISTERED, {"directory_id": UUID(int=3)}),
        (REGISTERED, {"boot_id": UUID(int=3)}),
        (RenewReplicas(node_id=2, directory_id=UUID(int=2), replicas=[]), {"node_id": 1}),
        (RenewReplicas(node_id=2, directory_id=UUID(int=2), replicas=[]), {"directory_id": UUID(int=1)}),
    ],
)
def test_a_node_speaks_for_itself(request_: Request[Any], changes: dict[str, object]) -> None:
    controller, asker = Member(1), Member(2)
    connect(controller, asker)

    def ask() -> None:
        operation, body = encode_request(request_)
        message = peer.ControllerRequest(request_id=5, operation=operation, body=body)
        controller.server.request_received(asker.identity, message)

    ask()
    assert len(controller.sent) == 1
    before = {name: getattr(request_, name) for name in changes}
    for name, value in changes.items():
        setattr(request_, name, value)
    ask()
    response = controller.sent[1][1]
    assert isinstance(response, peer.ControllerResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message is not None and type(request_).__name__ in response.error_message
    for name, value in before.items():
        setattr(request_, name, value)


@pytest.mark.parametrize(
    ("first", "count"), [(-1, 1000), (0, 0), (0, -1), (2**63 - 1, 1), (2**63 - 500, 1000)]
)
def test_producer_ids_that_there_are_not_are_no_answer(first: int, count: int) -> None:
    """A client would be given an id that cannot be written."""
    body = encode_result(AllocateProducerIdsResult(first=first, count=count))
    with pytest.raises(ProtocolError):
        decode_result(AllocateProducerIds(), body)


def test_nobody_is_hurt_by_frames_that_mean_nothing() -> None:
    """Before, a request or an answer with a null or malformed body ended the node that received it."""
    with running() as world:
        world.loop.run_for(1)
        controller = world.nodes[1].leaders.controller_id()
        asker = 1 + controller % 3
        client = world.nodes[asker].controller
        links = [link for node in world.nodes.values() for link in node.cluster.links.values()]
        streams = [link._stream for link in links]
        first_id = client._next_id
        answers: list[CreateTopicsResult | KafkaError] = []
        for number in range(len(FOREIGN)):
            wanted = CreateMissingTopics(names=[f"t{number}"])
            world.processes[asker].call(client.call, wanted, answers.append)
        for sender, node in world.nodes.items():
            for number, (operation, body) in enumerate([*FOREIGN, (-1, EMPTY), (99, EMPTY)]):
                request = peer.ControllerRequest(request_id=number, operation=operation, body=body)
                # As if it were the answer to a request that is pending there.
                response = peer.ControllerResponse(request_id=first_id + number, body=body)
                for other in world.ids:
                    world.processes[sender].call(node.cluster.send, other, request)
                    world.processes[sender].call(node.cluster.send, other, response)
        world.loop.run_for(1)
        assert all(process.alive for process in world.processes.values())
        assert [link._stream for link in links] == streams, "no connection was closed"
        refused = [each.code for each in answers if isinstance(each, KafkaError)]
        assert len(answers) == len(FOREIGN) and set(refused) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        world.create_topic("foo", via=asker)
