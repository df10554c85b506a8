"""What a report draws: merged percentiles, seconds without acknowledgements, faults at their time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra: pip install -e '.[spark]'")
pytest.importorskip("hdrh", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.report import figures
from pipeline.report.run import Run, read_runs
from tests.pipeline.report.run_folders import LATENCIES_US, fault_section, load_section, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    [run] = read_runs(write_run(tmp_path / "run", {"load": load_section(), "fault": fault_section()}))
    return run


def test_latency_of_a_second_is_that_of_its_records(run: Run) -> None:
    over_time = figures.latency_over_time(run, 1)
    assert [at for at, _ in over_time.p50] == [0.5, 1.5, 2.5, 3.5]
    assert [ms for _, ms in over_time.p50] == pytest.approx(
        [sorted(part)[1] / 1000 for part in LATENCIES_US], rel=1e-3
    )
    assert [ms for _, ms in over_time.max] == pytest.approx(
        [max(part) / 1000 for part in LATENCIES_US], rel=1e-3
    )


def test_bins_merge_histograms_rather_than_average(run: Run) -> None:
    # Seconds 2 and 3: five records of 1 ms, one of a second. An average of medians or maxima would say something else.
    over_time = figures.latency_over_time(run, 2)
    assert over_time.p50[1] == (3.0, pytest.approx(1.0, rel=1e-3))
    assert over_time.max[1] == (3.0, pytest.approx(1000, rel=1e-3))


def test_a_second_without_latencies_is_a_gap_in_the_line(run: Run) -> None:
    run.latency = [(second, encoded) for second, encoded in run.latency if second != 1]
    assert [ms is None for _, ms in figures.latency_over_time(run, 1).p99] == [False, True, False, False]


def test_a_partition_that_is_silent_counts_as_nothing(run: Run) -> None:
    by_partition = figures.throughput_over_time(run, 1)
    assert by_partition == {0: [(0, 1), (1, 1), (2, 1), (3, 1)], 1: [(0, 2), (1, 2), (2, 0), (3, 2)]}
    assert figures.total(by_partition) == [(0, 3), (1, 3), (2, 1), (3, 3)]
    assert figures.throughput_over_time(run, 2)[1] == [(0, 2), (2, 1)]


def test_the_curve_ends_at_the_maximum_and_at_what_the_records_can_tell(run: Run) -> None:
    histogram, is_warm_up_left_out = figures.overall(run)
    curve = figures.quantile_curve(histogram)
    assert not is_warm_up_left_out
    assert [ms for _, ms in curve] == sorted(ms for _, ms in curve)
    assert curve[0][1] == pytest.approx(0.9, rel=1e-3)
    assert curve[-1] == (pytest.approx(1 - 1 / 12), pytest.approx(1000, rel=1e-3))
    assert [name for name, _ in figures.percentile_rows(histogram)] == [
        "p50",
        "p75",
        "p90",
        "p95",
        "p99",
        "max",
    ]


def test_the_warm_up_is_left_out_unless_nothing_else_is_there(run: Run) -> None:
    assert run.load is not None
    run.load["warm_up_s"] = 3
    histogram, is_left_out = figures.overall(run)
    assert (histogram.get_total_count(), is_left_out) == (3, True)
    run.load["warm_up_s"] = 10
    histogram, is_left_out = figures.overall(run)
    assert (histogram.get_total_count(), is_left_out) == (12, False)


def test_events_count_from_the_first_record(run: Run) -> None:
    assert [(event.number, event.at_s) for event in figures.events(run)] == [(1, 1.5), (2, 3.25)]


def test_long_runs_have_as_many_points_as_short_ones() -> None:
    assert figures.bin_seconds(60) == 1
    assert figures.bin_seconds(240) == 1
    assert figures.bin_seconds(241) == 2
    for seconds in (1_000, 100_000, 5_000_000):
        assert seconds / figures.bin_seconds(seconds) <= 240


def test_settings_that_differ_are_found_on_both_sides() -> None:
    assert figures.differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
