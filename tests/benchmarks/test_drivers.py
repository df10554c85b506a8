"""Both drivers against librdkafka's own mock brokers: what they count must be what happened."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.driver import Driver, DriverError, Option, find_driver
from benchmarks.measure import Bench
from benchmarks.process_stats import sample_cpu
from benchmarks.rows import ROW_BY_NAME


class MockCluster:
    """Three mock brokers that live in a producer of this process; topics appear when they are asked for."""

    name = "mock"

    def __init__(self) -> None:
        self._owner = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 3, "log_level": 0})
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def new_topic(self, name: str) -> str:
        assert not self._owner.list_topics(name, timeout=10).topics[name].error
        return name

    def pids(self) -> dict[str, int]:
        return {"1": os.getpid()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    yield MockCluster()


@pytest.fixture(params=["c", "python"], scope="module")
def driver(request: pytest.FixtureRequest) -> Driver:
    found = find_driver(prefer_python=request.param == "python")
    if request.param == "c" and not found.description.startswith("C,"):
        pytest.skip(found.description)
    return found


def run(driver: Driver, cluster: MockCluster, job: str, topic: str, **options: Option) -> dict[str, Any]:
    named: dict[str, Option] = {key.replace("_", "-"): value for key, value in options.items()}
    common: dict[str, Option] = {"bootstrap": cluster.bootstrap, "topic": topic, "timeout-ms": 5000}
    return driver.run(job, common | named)


def topic_for(driver: Driver, cluster: MockCluster, name: str) -> str:
    return cluster.new_topic(f"{name}-{driver.description[0]}")


def test_what_was_produced_is_read_back_each_record_once(driver: Driver, cluster: MockCluster) -> None:
    topic = topic_for(driver, cluster, "roundtrip")
    written = run(driver, cluster, "produce", topic, total_records=5000, warmup_seconds=0, record_bytes=100)
    assert (written["acknowledged"], written["log_growth"], written["errors"]) == (5000, 5000, 0)
    assert written["bytes"] == 5000 * 100
    read = run(driver, cluster, "consume", topic, expect_records=5000, seconds=0)
    assert (read["records"], read["bytes"], read["errors"], read["passes"]) == (5000, 500_000, 0, 1)


def test_a_log_shorter_than_expected_is_an_error_of_the_run(driver: Driver, cluster: MockCluster) -> None:
    topic = topic_for(driver, cluster, "short")
    run(driver, cluster, "produce", topic, total_records=100, warmup_seconds=0)
    read = run(driver, cluster, "consume", topic, expect_records=130, seconds=0, timeout_ms=2000)
    assert read["errors"] == 30


def test_the_check_finds_missing_and_doubled_sequences(driver: Driver, cluster: MockCluster) -> None:
    topic = topic_for(driver, cluster, "check")
    paced = run(driver, cluster, "paced", topic, rate=1000, warmup_seconds=0.1, seconds=0.3, record_bytes=100)
    assert (paced["produced"], paced["errors"]) == (400, 0)
    intact = run(driver, cluster, "check", topic, expect_records=400)
    assert (intact["missing"], intact["duplicates"], intact["errors"]) == (0, 0, 0)
    lacking = run(driver, cluster, "check", topic, expect_records=410)
    assert lacking["missing"] == 10
    run(driver, cluster, "paced", topic, rate=1000, warmup_seconds=0.1, seconds=0.3, record_bytes=100)
    doubled = run(driver, cluster, "check", topic, expect_records=400)
    assert doubled["duplicates"] == 400


def test_latency_counts_one_request_per_record_of_every_producer(
    driver: Driver, cluster: MockCluster
) -> None:
    topic = topic_for(driver, cluster, "latency")
    options = {"producers": 3, "seconds": 0.5, "warmup_seconds": 0.5, "record_bytes": 100}
    result = run(driver, cluster, "latency", topic, **options)
    assert result["records"] > 0
    assert (
        abs(result["requests"] - result["records"]) <= 2 * 3
    )  # those in flight when the window opened and closed
    assert 0 < result["record_us"]["p50"] <= result["record_us"]["p99"] <= result["record_us"]["max"] * 1.01
    assert result["acknowledged"] == result["log_growth"]


def test_a_cluster_that_is_not_there_is_a_plain_error(driver: Driver) -> None:
    unreachable: dict[str, Option] = {"bootstrap": "127.0.0.1:9", "topic": "none", "timeout-ms": 300}
    with pytest.raises(DriverError, match="create"):
        driver.run("create", unreachable)


def test_a_row_sums_what_its_brokers_used(driver: Driver, cluster: MockCluster) -> None:
    """The mock cannot create topics, so the row's own steps are taken one by one."""

    class OnMock(Bench):
        def create_topic(self, partitions: int = 1) -> str:
            return topic_for(driver, cluster, "row")

        def delete_topic(self, topic: str) -> None:
            assert topic

    bench = OnMock(cluster, driver, seconds=0.3, log=lambda _text: None)  # type: ignore[arg-type]
    result = bench.measure(ROW_BY_NAME["produce-1k-16k"], runs=2)
    assert result.errors == 0
    assert result.median["mb_per_s"] > 0
    assert result.median["cpu_ms_per_mb"] == pytest.approx(
        statistics.median([run.brokers["1"]["cpu_ms_per_mb"] for run in result.runs])
    )


def test_cpu_time_of_a_process_counts_its_work() -> None:
    pids = {"me": os.getpid()}
    before = sample_cpu(pids)
    total = sum(i * i for i in range(2_000_000))
    used_ms = before.used_ms_until(sample_cpu(pids))["me"]
    assert total > 0
    assert 20 < used_ms < 20_000
