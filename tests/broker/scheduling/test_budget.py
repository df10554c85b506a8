"""Requests are served only until the budget of a loop iteration is spent; the others keep their order."""

from __future__ import annotations

from collections.abc import Callable

from broker.scheduling.budget import REQUESTS_S, LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.turn import SENDS_PER_READING, SENDS_S, Turn


class FakeLoop:
    """A loop whose iterations the test runs, with a clock that it sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._ready: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def iterate(self) -> bool:
        """Run one iteration. False: there was nothing to do."""
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()
        return bool(ready)


class _Client:
    """Serves its requests, each of which takes `cost_s`, as a connection does."""

    def __init__(
        self, loop: FakeLoop, budget: LoopBudget, served: list[str], name: str, cost_s: float
    ) -> None:
        self._loop = loop
        self._budget = budget
        self._served = served
        self._name = name
        self._cost_s = cost_s
        self.open = 0

    def ask(self, count: int) -> None:
        self.open += count
        self._serve()

    def _serve(self) -> None:
        while self.open:
            if self._budget.is_spent():
                self._budget.wait(self._serve)
                return
            self.open -= 1
            self._loop.now_s += self._cost_s
            self._served.append(self._name)


def test_an_iteration_serves_until_its_budget_is_spent() -> None:
    loop, served = FakeLoop(), list[str]()
    budget = LoopBudget(loop, loop.now)  # type: ignore[arg-type]
    client = _Client(loop, budget, served, "a", REQUESTS_S / 4)
    client.ask(10)
    assert len(served) == 4
    loop.iterate()
    assert len(served) == 8
    loop.iterate()
    assert len(served) == 10
    while loop.iterate():
        pass
    assert len(served) == 10


def test_clients_that_wait_are_served_in_their_order_and_before_new_ones() -> None:
    loop, served = FakeLoop(), list[str]()
    budget = LoopBudget(loop, loop.now)  # type: ignore[arg-type]
    for name in "abc":
        _Client(loop, budget, served, name, REQUESTS_S).ask(1)
    assert served == ["a"]
    loop.iterate()
    _Client(loop, budget, served, "d", REQUESTS_S).ask(1)
    while loop.iterate():
        pass
    assert served == ["a", "b", "c", "d"]


def test_a_client_with_many_requests_does_not_keep_others_waiting() -> None:
    loop, served = FakeLoop(), list[str]()
    budget = LoopBudget(loop, loop.now)  # type: ignore[arg-type]
    _Client(loop, budget, served, "many", REQUESTS_S / 2).ask(100)
    _Client(loop, budget, served, "one", REQUESTS_S / 2).ask(1)
    for _ in range(3):
        loop.iterate()
    assert "one" in served


def test_a_budget_costs_nothing_where_nothing_is_served() -> None:
    loop = FakeLoop()
    budget = LoopBudget(loop, loop.now)  # type: ignore[arg-type]
    assert not budget.is_spent()
    loop.iterate()
    assert not loop.iterate()


def test_a_budget_that_is_told_has_nothing_called_where_nothing_waits() -> None:
    """An iteration more after every request is a fifth of what a small one costs."""
    loop = FakeLoop()
    budget = LoopBudget(loop, loop.now, is_told=True)  # type: ignore[arg-type]
    assert not budget.is_spent()
    assert not loop.iterate()
    loop.now_s += REQUESTS_S
    assert budget.is_spent()
    budget.iteration_begins()
    assert not budget.is_spent()


def test_a_budget_that_nobody_has_told_of_the_iteration_lets_work_wait_for_the_next() -> None:
    loop, served = FakeLoop(), list[str]()
    budget = LoopBudget(loop, loop.now, is_told=True)  # type: ignore[arg-type]
    assert not budget.is_spent()
    loop.now_s += 1.0
    _Client(loop, budget, served, "a", REQUESTS_S).ask(3)
    assert served == []
    while loop.iterate():
        pass
    assert served == ["a"] * 3


class _Sender:
    def __init__(self, loop: FakeLoop, sent: list[str], name: str, cost_s: float) -> None:
        self._loop = loop
        self._sent = sent
        self._name = name
        self._cost_s = cost_s

    def flush(self) -> None:
        self._loop.now_s += self._cost_s
        self._sent.append(self._name)


def test_sends_to_peers_come_first_and_those_to_clients_are_spread_over_turns() -> None:
    loop, sent = FakeLoop(), list[str]()
    turn = Turn(loop, CommitDelay(loop.now, 0), LoopBudget(loop, loop.now))  # type: ignore[arg-type]

    class Rounds:
        def start(self) -> None: ...

    turn.set_rounds(Rounds())
    count = 10 * SENDS_PER_READING
    for number in range(count):
        turn.add_sender(_Sender(loop, sent, f"client {number}", SENDS_S / SENDS_PER_READING))
    turn.add_link(_Sender(loop, sent, "peer", 0.0))
    loop.iterate()
    assert sent[0] == "peer"
    assert SENDS_PER_READING <= len(sent) < count
    turn.add_link(_Sender(loop, sent, "peer again", 0.0))
    before = len(sent)
    loop.iterate()
    assert sent[before] == "peer again"
    while loop.iterate():
        pass
    assert [name for name in sent if name.startswith("client")] == [f"client {n}" for n in range(count)]
