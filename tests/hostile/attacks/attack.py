"""What an attack is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.hostile.target import Target
from tests.integration.wire import Wire


@dataclass(slots=True)
class Seen:
    """What an attacker saw."""

    counts: Counter[str] = field(default_factory=Counter)
    """What came back -> how often."""
    defects: list[str] = field(default_factory=list)
    """What should not have come back."""


Attack: TypeAlias = Callable[[Target], Seen]


def outcome(wire: Wire, receive_s: float) -> str:
    """What becomes of a connection within so many seconds: "closed", "answered" or "open"."""
    wire.socket.settimeout(receive_s)
    try:
        return "answered" if wire.socket.recv(1) else "closed"
    except TimeoutError:
        return "open"
    except OSError:
        return "closed"


def close_all(wires: list[Wire]) -> None:
    for wire in wires:
        wire.socket.close()
