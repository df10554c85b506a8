"""Tickets and outcomes, for tests that read the answers of an `Outcome` directly."""

from __future__ import annotations

from typing import Any, TypeAlias

from broker.coordinator.outcome import Decided, Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.records import GroupRecord
from protocol.codec import at_once

AnyTicket: TypeAlias = Ticket[Any]


def decided(decision: Decided[GroupRecord]) -> Outcome[GroupRecord]:
    """The outcome of a decision, which perhaps takes steps."""
    return decision if isinstance(decision, Outcome) else at_once(decision)


def new_ticket() -> AnyTicket:
    return Ticket(_not_called, _not_called)


def _not_called(_: object) -> None:
    raise AssertionError("a group only hands its tickets back")
