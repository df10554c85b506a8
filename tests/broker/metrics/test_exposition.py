"""The text of all metrics, made in the background."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from broker.admin_http.request import Answer
from broker.metrics.catalogue import Definition, Kind
from broker.metrics.exposition import Exposition
from broker.metrics.families import family
from broker.scheduling.background import PIECE_S, Background
from tests.simulator.loop import SimulatedLoop, new_loop

COUNT = Definition("varve_count", Kind.GAUGE, "Count.", ("number",))
ROWS = 20_000
STEP_S = 0.0001


class Slow(Collector):
    """Takes STEP_S for each piece of a family of many."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.collections = 0

    def collect(self) -> Iterator[Metric]:
        self.collections += 1
        for metric in family(COUNT, (((str(number),), number) for number in range(ROWS))):
            self.loop.take_time(STEP_S)
            yield metric


class Broken(Collector):
    def collect(self) -> Iterator[Metric]:
        raise RuntimeError("a mistake")


def test_the_loop_is_never_kept_for_long() -> None:
    loop = new_loop()
    exposition = Exposition(Background(loop, loop.time), [Slow(loop)])
    answers: list[Answer] = []
    longest_s, before_s, beats = 0.0, loop.time(), 0

    def beat() -> None:
        nonlocal longest_s, before_s, beats
        longest_s, before_s = max(longest_s, loop.time() - before_s), loop.time()
        beats += 1
        if not answers:
            loop.call_soon(beat)

    loop.call_soon(exposition.ask, answers.append)
    loop.call_soon(beat)
    loop.run_until(lambda: bool(answers), limit_s=10)
    assert b"".join(answers[0].body).count(b"\nvarve_count{") == ROWS
    assert beats > 20
    assert longest_s <= PIECE_S + 2 * STEP_S
    loop.close()


def test_who_asks_while_it_is_made_gets_the_same_text() -> None:
    loop = new_loop()
    slow = Slow(loop)
    exposition = Exposition(Background(loop, loop.time), [slow])
    answers: list[Answer] = []
    exposition.ask(answers.append)
    exposition.ask(answers.append)
    loop.run_until(lambda: len(answers) == 2, limit_s=10)
    assert answers[0] is answers[1]
    assert slow.collections == 1
    exposition.ask(answers.append)
    loop.run_until(lambda: len(answers) == 3, limit_s=10)
    assert slow.collections == 2
    loop.close()


def test_a_mistake_is_told_and_ends_nothing() -> None:
    loop = new_loop()
    exposition = Exposition(Background(loop, loop.time), [Broken()])
    answers: list[Answer] = []
    with capture_logs() as lines:
        exposition.ask(answers.append)
        exposition.ask(answers.append)
    assert [answer.status for answer in answers] == [500, 500]
    assert answers[0].body == [b"RuntimeError: see the node's log\n"]
    assert [line["event"] for line in lines] == ["the metrics could not be made"] * 2
    loop.close()
