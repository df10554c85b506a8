"""density, codecs, buffers and tune: their arithmetic, and each once on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from click.testing import CliRunner

from pipeline.__main__ import main
from pipeline.cluster import Cluster
from pipeline.lab.density import Point
from pipeline.lab.observed import Observed, Traffic, filled, observe, order
from pipeline.lab.tune import START, bottleneck, changed, play, said
from tests.pipeline.producer.conftest import Node


def test_the_model_is_what_comes_within_linger_and_fits() -> None:
    assert Point(65_536, 20, 5000, 1).model == pytest.approx(101)
    assert Point(65_536, 20, 5000, 10).model == pytest.approx(11)
    assert Point(65_536, 0, 5000, 1).model == 1
    assert Point(2080, 100, 5000, 1).model == pytest.approx(10)
    assert Point(100, 100, 5000, 1).model == 1


def test_a_producer_is_watched(node: Node) -> None:
    topic = "lab-watched"
    Cluster(node.bootstrap).ensure_topic(topic, partitions=2, replication_factor=1)
    settings = {"linger.ms": 50, "compression.type": "zstd"}
    found = observe(node.bootstrap, settings, Traffic(topic, order, 1.0, 500, spread_over=2))
    assert found.acknowledged == len(found.latencies_ms) == 500
    assert found.value_bytes == sum(len(order(number)) for number in range(500))
    assert found.errors == {}
    assert found.batch_records == 500
    assert found.records_per_batch > 2
    assert found.ratio > 1.5, "orders repeat themselves"
    assert found.queue_ms > 1
    assert found.round_trip_ms > 0
    plain = observe(node.bootstrap, {"linger.ms": 50}, Traffic(topic, order, 1.0, 500, spread_over=2))
    assert plain.ratio < 1


def test_a_full_queue_is_seen(node: Node) -> None:
    topic = "lab-full"
    Cluster(node.bootstrap).ensure_topic(topic, partitions=1, replication_factor=1)
    found = observe(node.bootstrap, {"queue.buffering.max.messages": 10}, Traffic(topic, filled(100), 0.5))
    assert found.full_waits > 0
    assert 0 < found.full_s < found.seconds


def observed(megabytes_per_s: float, **figures: float) -> Observed:
    found = Observed(acknowledged=1, value_bytes=int(megabytes_per_s * 1e6), seconds=1.0)
    for name, value in figures.items():
        setattr(found, name, value)
    return found


def test_the_playbook_keeps_what_helps_and_goes_on_from_there() -> None:
    def measure(settings: Mapping[str, Any]) -> list[Observed]:
        rate = 10.0 * (3 if settings["compression.type"] == "zstd" else 1)
        rate *= {0: 0.5, 5: 1, 20: 1.5, 100: 1.4}[settings["linger.ms"]]
        return [observed(rate * wobble) for wobble in (0.98, 1.0, 1.02)]

    book = play(measure, lambda _: None)
    assert changed(book) == {"linger.ms": 20, "compression.type": "zstd"}
    assert book.kept.megabytes_per_s == pytest.approx(45)
    assert "4.5 times the baseline" in said(book)


def test_the_playbook_does_not_keep_what_was_better_only_once() -> None:
    lucky = {"linger.ms": 100}
    met = 0

    def measure(settings: Mapping[str, Any]) -> list[Observed]:
        nonlocal met
        is_lucky = settings["linger.ms"] == lucky["linger.ms"]
        met += is_lucky
        return [observed(20.0 if is_lucky and met == 1 else 10.0)]

    book = play(measure, lambda _: None)
    assert changed(book) == {}
    assert met > 1


def test_the_playbook_keeps_nothing_that_is_within_the_noise() -> None:
    def measure(settings: Mapping[str, Any]) -> list[Observed]:
        rate = 10.0 if settings == START else 10.5
        return [observed(rate * wobble) for wobble in (0.9, 1.0, 1.1)]

    book = play(measure, lambda _: None)
    assert changed(book) == {}
    assert said(book).startswith("Nothing that was tried gave more")


def test_the_bottleneck_follows_from_where_the_time_goes() -> None:
    assert bottleneck(observed(1, client_cpu_s=0.95)).startswith("the client's processor")
    assert bottleneck(observed(1, queue_ms=90, round_trip_ms=3)).startswith("the cluster")
    assert bottleneck(observed(1, queue_ms=3, round_trip_ms=50)).startswith("the way")


@pytest.mark.parametrize(
    "name", ["density", "codecs", "buffers", pytest.param("sinks", marks=pytest.mark.slow)]
)
def test_an_experiment_has_findings(node: Node, tmp_path: Path, name: str) -> None:
    arguments = [
        "lab",
        name,
        "--quick",
        "--bootstrap-server",
        node.bootstrap,
        "--out",
        str(tmp_path / "r"),
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "r" / "sweep.json").read_text())
    assert found["tables"][0]["rows"]
    assert found["plots"][0]["series"][0]["points"]
    assert (tmp_path / "r" / "report.html").exists()


def test_tune_names_settings_and_what_is_waited_for(node: Node, tmp_path: Path) -> None:
    arguments = ["--bootstrap-server", node.bootstrap, "--runs", "1", "--seconds", "0.2"]
    done = CliRunner().invoke(main, ["tune", *arguments, "--out", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    assert "Settings to take over:" in done.output
    assert "What is waited for now" in " ".join(done.output.split())
