"""Tickets for tests that read the answers of an `Outcome` directly."""

from __future__ import annotations

from typing import Any, TypeAlias

from broker.coordinator.ticket import Ticket

AnyTicket: TypeAlias = Ticket[Any]


def new_ticket() -> AnyTicket:
    return Ticket(_not_called, _not_called)


def _not_called(_: object) -> None:
    raise AssertionError("a group only hands its tickets back")
