"""Brokers are asked at once, and a terminal shows how many have answered."""

from __future__ import annotations

import os
import pty
import sys
from threading import Event, Thread

import pytest

from broker.cli.replica_requests import Placement, ReplicaPlace

PLACEMENT = Placement(
    [
        ReplicaPlace("t", 0, 1, 1),
        ReplicaPlace("t", 1, 1, 2),
        ReplicaPlace("t", 0, 2, 1),
        ReplicaPlace("t", 0, 3, 1),
    ],
    {1: ("one", 1), 2: ("two", 2)},
)


def test_a_terminal_shows_how_many_brokers_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three: one answers, one is away, and one takes its time."""
    may_answer = Event()

    def ask(address: tuple[str, int], named: dict[str, list[int]]) -> dict[str, list[int]]:
        if address == ("two", 2):
            may_answer.wait(30)
        return named

    answers: dict[int, object] = {}
    asking = Thread(target=lambda: answers.update(PLACEMENT.ask_brokers(ask)))
    terminal, other_end = pty.openpty()
    try:
        with os.fdopen(other_end, "w") as shown:
            monkeypatch.setattr(sys, "stderr", shown)
            asking.start()
            said = b""
            while b"2 of 3 brokers have answered" not in said:
                said += os.read(terminal, 4096)
            may_answer.set()
            asking.join()
            # The line is gone at the end.
            while not said.endswith(b"\r\x1b[K"):
                said += os.read(terminal, 4096)
    finally:
        may_answer.set()
        os.close(terminal)
    assert answers[1] == {"t": [0, 1]}
    assert answers[2] == {"t": [0]}
    assert isinstance(answers[3], OSError)
