"""The controller's operations."""

from __future__ import annotations

import typing

from broker.controller.operations import OPERATIONS
from protocol.controller import operations
from protocol.controller.replicas import TransferLeadership


def test_every_request_has_somebody_who_carries_it_out() -> None:
    """The table takes and returns what the request declares."""
    declared = dict(operations.OPERATIONS.values())
    assert set(OPERATIONS) == set(declared) - {TransferLeadership}
    for request_class, decide in OPERATIONS.items():
        hints = typing.get_type_hints(decide)
        assert hints["request"] is request_class
        assert typing.get_args(hints["return"]) == (declared[request_class],)
