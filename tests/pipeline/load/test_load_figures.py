"""What a load reports: histograms that merge, gaps per partition, and failures counted rather than hidden."""

from __future__ import annotations

import re
import socket
import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.load.job import LoadOptions, summarize
from pipeline.load.latency import merge, new_histogram, percentiles_ms, record
from pipeline.load.over_time import longest_gap
from pipeline.load.producer_task import DELIVERY_SCHEMA_SQL
from pipeline.load.progress import TOKEN_BYTES, DriverLines, LineAddress, Progress, TaskLine
from pipeline.summary import perf_test_line
from pipeline.workloads.spec import RunSpec

SPEC = RunSpec("t", 10, 5, 1000, 10, 1, 100.0, 1_795_000_000_000)
SECOND_US = 1_000_000


def delivery(sequence: int, partition: int, at_us: int, latency_us: int) -> tuple[object, ...]:
    return (sequence, "t", partition, sequence, 1000, at_us - latency_us, at_us, latency_us, None)


@given(st.lists(st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=30), min_size=1, max_size=4))
def test_merged_histograms_say_what_one_histogram_of_everything_says(parts: list[list[int]]) -> None:
    whole, encoded = new_histogram(), []
    for part in parts:
        histogram = new_histogram()
        for latency_us in part:
            record(histogram, latency_us, 1)
            record(whole, latency_us, 1)
        encoded.append(histogram.encode())
    merged = percentiles_ms(merge(encoded))
    expected = percentiles_ms(whole)
    assert merged is not None
    assert expected is not None
    assert {name: merged[name] for name in merged if name != "mean"} == {
        name: expected[name] for name in expected if name != "mean"
    }
    assert merged["mean"] == pytest.approx(expected["mean"])


def test_nothing_recorded_has_no_percentiles() -> None:
    assert percentiles_ms(merge([])) is None


def test_the_longest_gap_is_that_of_one_partition_while_others_go_on(spark: SparkSession) -> None:
    busy = [delivery(n, 0, n * 100_000, 1000) for n in range(50)]
    stalled = [
        delivery(100 + n, 1, at_us, 1000) for n, at_us in enumerate([0, 100_000, 2_600_000, 2_700_000])
    ]
    acknowledged = spark.createDataFrame([*busy, *stalled], DELIVERY_SCHEMA_SQL)
    gap = longest_gap(acknowledged)
    assert gap is not None
    assert (gap["gap_ms"], gap["partition"], gap["from_us"]) == (2500.0, 1, 100_000)
    assert gap["gap_ms_by_partition"] == {"t-0": 100.0, "t-1": 2500.0}


def test_a_gap_counts_since_a_moment_if_it_ends_after_it(spark: SparkSession) -> None:
    times_us = [0, 3_000_000, 3_100_000, 4_100_000]
    acknowledged = spark.createDataFrame(
        [delivery(n, 0, at_us, 1) for n, at_us in enumerate(times_us)], DELIVERY_SCHEMA_SQL
    )
    straddling, later = (
        longest_gap(acknowledged, since_us=2_000_000),
        longest_gap(acknowledged, since_us=3_050_000),
    )
    assert straddling is not None
    assert later is not None
    assert (straddling["gap_ms"], later["gap_ms"]) == (3000.0, 1000.0)
    assert longest_gap(acknowledged, since_us=5_000_000) is None


def test_failed_and_unreported_records_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    acknowledged = [delivery(n, 0, 10 * SECOND_US + n * 1000, 2000) for n in range(6)]
    failed = [(n, "t", -1, -1, 1000, 10 * SECOND_US, None, None, "timed out") for n in (6, 7, 8)]
    deliveries = spark.createDataFrame([*acknowledged, *failed], DELIVERY_SCHEMA_SQL)
    figures = summarize(SPEC, LoadOptions("unused:1", tmp_path, warm_up_s=0), deliveries)
    assert figures["acknowledged"] == 6
    assert figures["failed"] == 3
    assert figures["unreported"] == 1
    assert figures["errors"] == {"timed out": 3}
    assert figures["latency_ms"]["p50"] == pytest.approx(2.0, rel=0.01)
    assert re.fullmatch(
        r"6 records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), 2\.00 ms avg latency, 2\.00 ms max latency,"
        r" 2 ms 50th, 2 ms 95th, 2 ms 99th, 2 ms 99\.9th\.",
        perf_test_line(figures),
    )
    seconds = spark.read.parquet(str(tmp_path / "throughput.parquet")).collect()
    assert sum(row["records"] for row in seconds) == 6


def test_a_load_without_any_acknowledgement_still_reports(spark: SparkSession, tmp_path: Path) -> None:
    deliveries = spark.createDataFrame(
        [(0, "t", -1, -1, 1000, 1, None, None, "refused")], DELIVERY_SCHEMA_SQL
    )
    figures = summarize(SPEC, LoadOptions("unused:1", tmp_path), deliveries)
    assert (figures["acknowledged"], figures["failed"], figures["unreported"]) == (0, 1, 9)


def _have_come(count: int, found: list[Progress]) -> bool:
    return len(found) >= count


def test_progress_adds_up_the_latest_totals_of_each_task() -> None:
    seen: list[Progress] = []
    arrived = threading.Condition()

    def report(progress: Progress) -> None:
        with arrived:
            seen.append(progress)
            arrived.notify()

    with DriverLines("127.0.0.1", report) as driver:
        lines = [TaskLine(driver.address, task) for task in (0, 1)]
        for count, (line, progress) in enumerate(
            [
                (lines[0], Progress(5, 1, 0)),
                (lines[1], Progress(7, 2, 1)),
                (lines[0], Progress(9, 8, 0)),
            ],
            start=1,
        ):
            line.exchange(progress)
            with arrived:
                assert arrived.wait_for(partial(_have_come, count, seen), timeout=10)
            assert not line.is_told_to_stop
        for line in lines:
            line.close()
    assert seen == [Progress(5, 1, 0), Progress(12, 3, 1), Progress(16, 10, 1)]


def test_every_task_is_told_to_stop_also_one_that_calls_later() -> None:
    with DriverLines("127.0.0.1", lambda progress: None) as driver:
        early = TaskLine(driver.address, 0)
        early.exchange(Progress(0, 0, 0))
        driver.order_stop()
        late = TaskLine(driver.address, 1)
        for line in (early, late):
            deadline_s = time.monotonic() + 10
            while not line.is_told_to_stop and time.monotonic() < deadline_s:
                line.exchange(Progress(0, 0, 0))
            assert line.is_told_to_stop
            line.close()


def test_a_stranger_on_the_line_is_hung_up_on_and_counts_nothing() -> None:
    seen: list[Progress] = []
    with DriverLines("127.0.0.1", seen.append) as driver:
        address = driver.address
        with socket.create_connection((address.host, address.port), timeout=10) as stranger:
            stranger.sendall(bytes(TOKEN_BYTES) + bytes(4 + 24))
            assert stranger.recv(1) == b""
    assert not seen


def test_a_task_without_a_line_goes_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    line = TaskLine(LineAddress("127.0.0.1", port, bytes(TOKEN_BYTES)), 0)
    line.exchange(Progress(1, 1, 0))
    assert not line.is_told_to_stop
    line.close()
