"""Background work is done in pieces, some in each loop iteration, in turns."""

from __future__ import annotations

from broker.scheduling.background import BACKGROUND_S, PIECE_S, Background, Steps
from tests.broker.scheduling.test_budget import FakeLoop

COST_S = PIECE_S / 2


def steps(loop: FakeLoop, done: list[str], name: str, count: int) -> Steps:
    for _ in range(count):
        loop.now_s += COST_S
        done.append(name)
        yield


def test_short_work_is_done_at_once() -> None:
    loop, done = FakeLoop(), list[str]()
    Background(loop, loop.now).run(steps(loop, done, "a", 2))  # type: ignore[arg-type]
    assert done == ["a", "a"]


def test_work_that_must_not_wait_begins_although_the_time_is_spent() -> None:
    loop, done = FakeLoop(), list[str]()
    background = Background(loop, loop.now)  # type: ignore[arg-type]
    for _ in range(50):
        background.run(steps(loop, done, "a", 20))
    background.run(steps(loop, done, "waits", 1))
    background.begin(steps(loop, done, "begins", 20))
    assert "waits" not in done
    assert 0 < done.count("begins") < 20
    while loop.iterate():
        pass
    assert done.count("begins") == 20


def test_long_work_is_spread_over_iterations() -> None:
    loop, done = FakeLoop(), list[str]()
    Background(loop, loop.now).run(steps(loop, done, "a", 100))  # type: ignore[arg-type]
    most = 0
    while True:
        before = len(done)
        if not loop.iterate():
            break
        most = max(most, len(done) - before)
    assert done == ["a"] * 100
    assert most * COST_S <= 2 * PIECE_S


def test_much_work_takes_turns_and_no_more_than_its_time_in_each_iteration() -> None:
    loop, done = FakeLoop(), list[str]()
    background = Background(loop, loop.now)  # type: ignore[arg-type]
    names = [str(number) for number in range(50)]
    for name in names:
        background.run(steps(loop, done, name, 20))
    assert len(done) * COST_S < BACKGROUND_S + 2 * PIECE_S, "the first pieces, too, have to wait"
    while True:
        began_s = loop.now_s
        if not loop.iterate():
            break
        assert loop.now_s - began_s < BACKGROUND_S + 2 * PIECE_S
    assert sorted(done) == sorted(names * 20)
    assert done.index("49") < len(done) - done[::-1].index("0") - 1, "no work waits for the end of another"
