"""Scenarios follow the load's acknowledgements, and their failures are the trial's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.load.progress import Progress
from pipeline.trials.faults import Injection
from pipeline.trials.local_cluster import LocalCluster, free_ports

RECORDS = 100


def injection(scenario: Callable[[Injection], None], tmp_path: Path) -> Injection:
    return Injection(scenario, LocalCluster(tmp_path), "t", RECORDS, lambda _: None)


def progress(acknowledged: int) -> Progress:
    return Progress(RECORDS, acknowledged, 0)


def test_a_scenario_waits_for_shares_of_the_records(tmp_path: Path) -> None:
    acknowledged = 0
    seen: list[int] = []
    is_through = threading.Event()

    def scenario(run: Injection) -> None:
        run.wait_for(0.4)
        seen.append(acknowledged)
        run.wait_for_more(0.2)
        seen.append(acknowledged)
        is_through.set()

    with injection(scenario, tmp_path) as run:
        while not is_through.wait(0.001) and acknowledged < 10_000:
            acknowledged += 1
            run.report(progress(acknowledged))
    assert is_through.is_set()
    assert seen[0] >= 40
    assert seen[1] >= seen[0] + 20


def test_a_load_that_is_over_too_soon_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(PipelineError, match="more --records"),
        injection(lambda run: run.wait_for(0.5), tmp_path) as run,
    ):
        run.report(progress(49))


def test_time_does_not_pass_beyond_the_end_of_the_load(tmp_path: Path) -> None:
    def scenario(run: Injection) -> None:
        run.let_pass(3600)
        run.note("went on")

    with injection(scenario, tmp_path) as run:
        pass
    assert [event["what"] for event in run.events] == ["went on"]


def test_what_goes_wrong_in_a_scenario_is_raised_in_the_load_s_thread(tmp_path: Path) -> None:
    with (
        pytest.raises(PipelineError, match="no cluster"),
        injection(lambda run: run.kill(1), tmp_path) as run,
    ):
        pass
    assert [event["what"] for event in run.events] == ["kill -9 of node 1"]


def test_a_failing_load_is_the_news_and_not_the_scenario_that_fails_with_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError), injection(lambda run: run.wait_for(1), tmp_path):
        raise KeyError


def test_a_cluster_that_was_stopped_cannot_be_brought_up_again(tmp_path: Path) -> None:
    """A scenario may still be at work when the end of its trial stops the nodes."""
    cluster = LocalCluster(tmp_path)
    cluster.stop()
    with pytest.raises(PipelineError, match="has been stopped"):
        cluster.up()


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports()
    taken = {*ports, *(port + 1 for port in ports)}
    assert len(taken) == 6
    assert max(taken) < 32768
