"""The jobs on a standalone Spark cluster: a master and two workers, as `sbin/start-all.sh` would start them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

import pyspark
from confluent_kafka import Consumer, TopicPartition

from pipeline.cluster import Cluster
from pipeline.spark.java_runtime import find_java
from pipeline.trials.local_cluster import LocalCluster, local_cluster

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
_SPARK_HOME = Path(pyspark.__file__).parent
_CORES_OF_A_WORKER = 2
#: The driver tells the executors which Python is theirs.
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable}


class SparkCluster:
    """A standalone cluster; its workers know nothing of this checkout but the interpreter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = ExitStack()
        self._daemons: list[subprocess.Popen[str]] = []
        self.master = self._start(
            "master.Master", "--host", "127.0.0.1", "--port", "0", says=r"at (spark://\S+)"
        )
        for _ in range(2):
            self._start(
                "worker.Worker", "--cores", str(_CORES_OF_A_WORKER), "--memory", "1g", "--host", "127.0.0.1",
                "--work-dir", str(folder / "work"), self.master, says=r"(registered with master)",
            )  # fmt: skip

    def executors(self) -> list[int]:
        """Their process ids, if there are any: each is a child of its worker."""
        parents = ",".join(str(process.pid) for process in self._daemons[1:])
        found = subprocess.run(["pgrep", "-P", parents], capture_output=True, text=True, check=False)
        return [int(line) for line in found.stdout.split()]

    def _start(self, name: str, *arguments: str, says: str) -> str:
        """Start one of Spark's daemons; what its log says first that matches."""
        command = [str(_SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
        }
        process = self._started.enter_context(
            subprocess.Popen(
                command,
                env=environment,
                cwd=self._folder,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        self._daemons.append(process)
        self._started.callback(os.killpg, process.pid, signal.SIGKILL)
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(says, line):
                # Nobody reads on: a daemon prints little, which the pipe holds.
                return found[1]
        raise AssertionError(f"{name} ended")

    def close(self) -> None:
        self._started.close()


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster"), print) as running:
        yield running


@pytest.fixture
def pipeline(
    spark_cluster: SparkCluster, brokers: LocalCluster
) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        line = [
            sys.executable, "-m", "pipeline", command, "--bootstrap-server", brokers.bootstrap_server,
            "--master", spark_cluster.master, "--conf", "spark.driver.host=127.0.0.1",
        ]  # fmt: skip
        return subprocess.run(
            [*line, *map(str, arguments)],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    return run


def test_a_load_and_its_proof(
    pipeline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    loaded = pipeline("load", "--topic", "t", "--records", "4000", "--max", "--producers", "4", "--out", run)
    assert loaded.returncode == 0, loaded.stderr
    assert "4000/4000" in loaded.stderr, "the bar has moved"
    verified = pipeline("verify", "--run", run, "--tasks", "4")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["verify"]["records_read"] == summary["load"]["acknowledged"] == 4000
    assert summary["verify"]["read_by"].startswith("Spark's official connector")


def test_executors_that_do_not_share_the_folder_of_the_run(
    pipeline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A file system of Hadoop's that Python knows nothing of stands for an object store."""
    run, store = tmp_path / "run", tmp_path / "store"
    store.mkdir()
    where = ("--conf", f"spark.hadoop.fs.viewfs.mounttable.store.link./runs={store.as_uri()}")
    sent = ("--topic", "elsewhere", "--records", "400", "--max", "--producers", "4")
    loaded = pipeline("load", *sent, *where, "--deliveries", "viewfs://store/runs/001", "--out", run)
    assert loaded.returncode == 0, loaded.stderr
    assert (store / "001/_SUCCESS").exists()
    assert not (run / "deliveries.parquet").exists()
    verified = pipeline("verify", *where, "--run", run, "--tasks", "4")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((run / "summary.json").read_text())["verify"]["records_read"] == 400


def test_a_stream_whose_driver_is_killed(
    pipeline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Executors run on for a moment when their driver is gone: what they still send must not be doubled."""
    run = tmp_path / "run"
    feed = ("--duration", "30s", "--rate", "100", "--keys", "10", "--warm-up", "0")
    done = pipeline("stream", *feed, "--sink", "varve", "--restart-driver", "--out", run)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((run / "summary.json").read_text())["stream"]
    assert (told["driver_kills"], told["arrived"], told["repeated"]) == (1, 3000, 0)


def test_more_producers_than_slots_are_refused_before_anything_is_sent(
    pipeline: Callable[..., subprocess.CompletedProcess[str]], brokers: LocalCluster, tmp_path: Path
) -> None:
    Cluster(brokers.bootstrap_server).ensure_topic("slots", 3, 3)
    done = pipeline("load", "--topic", "slots", "--producers", "5", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "5 tasks have to run at once" in done.stderr
    assert "has slots for 4" in done.stderr
    assert not any(end for _, end in Cluster(brokers.bootstrap_server).offsets("slots").values())


def test_a_lost_executor_fails_the_run_and_sends_nothing_twice(
    spark_cluster: SparkCluster, brokers: LocalCluster, tmp_path: Path
) -> None:
    asked = Cluster(brokers.bootstrap_server)
    asked.ensure_topic("lost", 3, 3)
    command = [
        sys.executable, "-m", "pipeline", "load", "--bootstrap-server", brokers.bootstrap_server,
        "--master", spark_cluster.master, "--conf", "spark.driver.host=127.0.0.1", "--topic", "lost",
        "--records", "1000000", "--rate", "1000", "--producers", "4", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    # Those of the test before may still be about to end.
    others = set(spark_cluster.executors())
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        while not any(end for _, end in asked.offsets("lost").values()):
            assert process.poll() is None, "the load goes on"
        ours = [pid for pid in spark_cluster.executors() if pid not in others]
        os.kill(ours[0], signal.SIGKILL)
        try:
            _, said = process.communicate(timeout=280)
        finally:
            process.kill()
    assert process.returncode == 2, said
    assert "the job failed" in said
    assert "Traceback" not in said
    sequences = _sequences(brokers.bootstrap_server, "lost", asked.offsets("lost"))
    assert len(sequences) == len(set(sequences))


def _sequences(bootstrap_server: str, topic: str, offsets: dict[int, tuple[int, int]]) -> list[bytes]:
    """That of each record, from its headers."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_server, "group.id": "test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in offsets])
    found: list[bytes] = []
    while len(found) < sum(end for _, end in offsets.values()):
        for message in consumer.consume(1000, timeout=10):
            assert message.error() is None
            headers = message.headers()
            assert isinstance(headers, list)
            found += [value for name, value in headers if name == "sequence" and isinstance(value, bytes)]
    consumer.close()
    return found
