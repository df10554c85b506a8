"""The commands as a user types them, against three real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from confluent_kafka import Producer

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.trials.local_cluster import LocalCluster, local_cluster

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster"), print) as running:
        yield running


def pipeline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@contextmanager
def loading(cluster: LocalCluster, topic: str, run: Path, *, records: int) -> Iterator[subprocess.Popen[str]]:
    """A load of 1,000 records per second, in a process group of its own, that has begun to send."""
    asked = Cluster(cluster.bootstrap_server)
    asked.ensure_topic(topic, 3, 3)
    command = [
        sys.executable, "-m", "pipeline", "load", "--bootstrap-server", cluster.bootstrap_server, "--topic", topic,
        "--records", str(records), "--rate", "1000", "--out", str(run),
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not any(end for _, end in asked.offsets(topic).values()):
            assert process.poll() is None, "the load goes on"
        yield process


def test_load_then_verify_by_both_ways_of_reading(cluster: LocalCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    where = ("--bootstrap-server", cluster.bootstrap_server)
    loaded = pipeline(
        "load", *where, "--topic", "orders", "--records", "3000", "--rate", "1500",
        "--compression", "lz4", "--record-size", "200", "--producers", "3", "--out", run,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    load = json.loads((run / "summary.json").read_text())["load"]
    assert (load["records"], load["acknowledged"], load["failed"]) == (3000, 3000, 0)
    assert len(load["longest_gap"]["gap_ms_by_partition"]) == 3

    by_python = pipeline("verify", *where, "--run", run, "--connector", "python")
    assert by_python.returncode == 0, by_python.stdout + by_python.stderr
    by_spark = pipeline("verify", *where, "--run", run, "--connector", "jvm")
    assert by_spark.returncode == 0, by_spark.stdout + by_spark.stderr
    verified = json.loads((run / "summary.json").read_text())["verify"]
    assert verified["read_by"].startswith("Spark's official connector")
    assert verified["records_read"] == 3000


@pytest.mark.parametrize(
    ("workload", "scale", "check"),
    [
        ("txn", 0.05, "records of aborted transactions served"),
        ("compact-tail", 0.05, "keys whose newest value is kept"),
        ("cdc-orders", 0.05, "keys on another partition than their hash says"),
        ("nexmark", 0.02, "values other than sent"),
        ("omb-100b", 0.01, "records in another topic than sent"),
        ("backlog", 0.02, "acknowledged records found"),
        ("purge", 0.2, "purges that deleted nothing"),
    ],
)
def test_a_workload_is_run_and_judged(
    cluster: LocalCluster, tmp_path: Path, workload: str, scale: float, check: str
) -> None:
    run = tmp_path / "run"
    where = ("--bootstrap-server", cluster.bootstrap_server)
    done = pipeline("run", workload, *where, "--scale", str(scale), "--out", run)
    assert done.returncode == 0, done.stdout + done.stderr
    verified = json.loads((run / "summary.json").read_text())["verify"]
    assert verified["passed"]
    assert check in {each["name"] for each in verified["checks"]}
    assert verified["records_read"] > 0


def test_a_stranger_who_writes_while_the_load_runs_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    where = ("--bootstrap-server", cluster.bootstrap_server)
    with loading(cluster, "strange", run, records=4000) as process:
        stranger = Producer({"bootstrap.servers": cluster.bootstrap_server})
        stranger.produce("strange", b"hello")
        assert stranger.flush(20) == 0
        printed, said = process.communicate(timeout=280)
    assert process.returncode == 0, printed + said
    verified = pipeline("verify", *where, "--run", run)
    assert verified.returncode == 1, verified.stderr
    checks = json.loads((run / "summary.json").read_text())["verify"]["checks"]
    failed = {check["name"]: check["actual"] for check in checks if check["status"] == "FAIL"}
    assert failed == {"alien records": 1, "payloads that miss their checksum": 1}
    assert "FAIL" in verified.stdout


def test_a_run_on_a_topic_judges_neither_the_one_before_nor_the_one_after(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap_server)
    for name in ("one", "two", "three"):
        run = tmp_path / name
        loaded = pipeline("load", *where, "--topic", "twice", "--records", "500", "--max", "--out", run)
        assert loaded.returncode == 0, loaded.stderr
    run = tmp_path / "two"
    verified = pipeline("verify", *where, "--run", run.as_uri(), "--connector", "python")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((run / "summary.json").read_text())["verify"]["records_read"] == 500
    assert max(len(line) for line in verified.stdout.splitlines()) <= 80


def test_an_interrupted_load_can_be_verified_for_what_was_acknowledged(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    where = ("--bootstrap-server", cluster.bootstrap_server)
    with loading(cluster, "interrupted", run, records=1_000_000) as process:
        # As Ctrl-C in a terminal does: everybody in its group, Spark's JVM and workers among them.
        os.killpg(process.pid, signal.SIGINT)
        printed, said = process.communicate(timeout=280)
    assert process.returncode == 130, printed + said
    assert "pipeline: interrupted" in said
    assert "Traceback" not in said
    load = json.loads((run / "summary.json").read_text())["load"]
    assert load["interrupted"]
    assert 0 < load["acknowledged"] == load["records"] - load["unreported"] < 1_000_000
    verified = pipeline("verify", *where, "--run", run, "--connector", "python")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((run / "summary.json").read_text())["verify"]["records_read"] == load["acknowledged"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--topic", "no such topic!"), "no such topic!"),
        (("--topic", "t", "--rate", "0"), "0 is not in the range x>0"),
        (("--topic", "t", "--out", "/proc/run"), "/proc/run cannot be the folder of a run"),
        (("--topic", "t", "--out", "s3a://bucket/run"), "only a folder that is mounted here"),
    ],
)
def test_bad_input_is_said_in_plain_words(
    cluster: LocalCluster, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    out = () if "--out" in arguments else ("--out", tmp_path / "run")
    done = pipeline("load", "--bootstrap-server", cluster.bootstrap_server, *arguments, *out)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "no broker answers" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demonstration_survives_the_kill_of_a_leader(tmp_path: Path) -> None:
    done = pipeline(
        "demo",
        "--records",
        "15000",
        "--rate",
        "1500",
        "--base-dir",
        tmp_path / "nodes",
        "--out",
        tmp_path / "run",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["verify"]["passed"]
    assert "partitions whose replicas are not alike" in {
        check["name"] for check in summary["verify"]["checks"]
    }
    assert summary["fault"]["gap"]["gap_ms"] > 0
    assert "kill -9" in (killed := summary["fault"]["events"][0]["what"])
    report = tmp_path / "run" / "report.html"
    assert str(report) in done.stdout
    # The kill is marked in the plots.
    page = report.read_text()
    assert killed in page
    assert page.count('class="flag"') >= 2
    assert {log.name for log in (tmp_path / "run").glob("*.log")} == {
        "spark.log", "node-1.log", "node-2.log", "node-3.log",
    }  # fmt: skip
    assert not (tmp_path / "nodes").exists()
    with pytest.raises(PipelineError, match="no cluster"):
        LocalCluster(tmp_path / "nodes").pids()


def test_the_fault_test_finds_every_record_after_a_restart_of_all_nodes(tmp_path: Path) -> None:
    done = pipeline(
        "fault-test", "restart-all", "--records", "4000", "--base-dir", tmp_path / "nodes", "--out", tmp_path / "runs",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "runs" / "restart-all" / "summary.json").read_text())
    assert summary["load"]["acknowledged"] == summary["verify"]["records_read"] == 4000
    assert summary["verify"]["read_by"].startswith("Spark's official connector")
    assert [event["what"] for event in summary["fault"]["events"]] == [
        "kill -9 of nodes 1, 2, 3",
        "nodes 1, 2, 3 back",
        "all replicas in sync",
    ]
    assert "4,000" in done.stdout
    assert not (tmp_path / "nodes" / "restart-all").exists()


def test_the_fault_test_fails_on_a_violation_and_keeps_the_data(tmp_path: Path) -> None:
    """A record of a stranger is slipped in while the load runs."""
    command = [
        sys.executable, "-m", "pipeline", "fault-test", "kill-two", "--records", "4000",
        "--base-dir", str(tmp_path / "nodes"), "--out", str(tmp_path / "runs"),
    ]  # fmt: skip
    nodes = tmp_path / "nodes" / "kill-two"
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "back" in line:
                break
        ports = json.loads((nodes / "cluster.json").read_text())["ports"]
        stranger = Producer({"bootstrap.servers": ",".join(f"localhost:{port}" for port in ports)})
        stranger.produce("kill-two", b"hello")
        left = stranger.flush(60)
        printed, said = process.communicate(timeout=280)
    assert left == 0
    assert process.returncode == 1, printed + said
    assert "alien records" in printed
    assert "FAIL" in printed
    assert list(nodes.glob("node-*/data/kill-two-*"))
    assert LocalCluster(nodes).pids() == {}


def test_a_cluster_that_is_not_there_is_said_in_plain_words(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = pipeline("load", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--out", run)
    assert done.returncode == 2
    assert "no broker answers at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    verified = pipeline("verify", "--bootstrap-server", "127.0.0.1:1", "--run", run)
    assert verified.returncode == 2
    assert "not the folder of a finished load" in verified.stderr
