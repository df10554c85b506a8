"""Whatever a node asks of the controller is decided or refused, and what is decided can be read again: a record that
cannot be read would end every node, at every start."""

from __future__ import annotations

import typing
from contextlib import suppress
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.controller.operations import OPERATIONS, Leadership
from protocol.codec import at_once
from protocol.controller import operations
from protocol.controller.brokers import DescribeQuorum, RegisterBroker
from protocol.controller.replicas import TransferLeadership
from protocol.controller.request import Request
from protocol.controller.transactions import JoinTransaction, WriteMarkers
from protocol.errors import KafkaError
from tests.broker.metadata.test_metadata_controller import Cluster, directory
from tests.protocol.strategies import messages

#: Carried out by a partition's leader, and by a replica that is at work.
ELSEWHERE = (TransferLeadership, DescribeQuorum)


def registration(**changes: Any) -> RegisterBroker:
    values: dict[str, Any] = {
        "cluster_id": "cluster", "node_id": 1, "directory_id": directory(1), "boot_id": UUID(int=9), "endpoints": [],
        "peer_host": "h", "peer_port": 1, "metadata_incarnation": 0,
    }  # fmt: skip
    return RegisterBroker(**(values | changes))


def test_every_request_has_somebody_who_carries_it_out() -> None:
    """The table takes and returns what the request declares."""
    declared = dict(operations.OPERATIONS.values())
    assert set(OPERATIONS) == set(declared) - {TransferLeadership, WriteMarkers, JoinTransaction}
    for request_class, decide in OPERATIONS.items():
        hints = typing.get_type_hints(decide)
        assert hints["request"] is request_class
        decision = typing.get_args(hints["return"])[-1]
        assert typing.get_args(decision) == (declared[request_class],)


REQUESTS: st.SearchStrategy[Request[Any]] = st.one_of(
    [messages(cls, operations.VERSION) for cls in OPERATIONS if cls not in ELSEWHERE]
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS, max_size=6))
@example([registration(node_id=-2)])
@example([registration(metadata_incarnation=-1)])
@example([registration(), registration(cluster_id="another")])
def test_whatever_is_asked_can_be_replayed(requests: list[Request[Any]]) -> None:
    cluster = Cluster()
    leadership = Leadership(cluster.controller, cluster.image, replica=None, epoch=1)  # type: ignore[arg-type]
    for request in requests:
        with suppress(KafkaError):
            decision = at_once(OPERATIONS[type(request)](leadership, request))
            for record in decision.records:
                cluster.image.replay(*record, cluster.image.end_offset, 1)
