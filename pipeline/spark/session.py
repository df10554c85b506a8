"""The Spark session of the jobs: quiet, with the right Java and the right Python, on this machine or on a cluster."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.errors import SlotsMissing
from pipeline.spark.connector import Connector
from pipeline.spark.java_runtime import JavaRuntime, find_java

# Up to here the optimizing compiler costs more CPU than it saves (100,000 records: 48 s of the JVM against 28 s),
# and takes it from the brokers that are being measured.
_SHORT_JOB_RECORDS = 1_000_000
#: Executors of a cluster register within this time, or count as not to be had.
_SLOTS_TIMEOUT_S = 30.0
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs."""

    master: str | None = None
    """`spark://HOST:PORT`, `yarn`, `k8s://...`, `local[N]`; None: on this machine, with as many slots as are needed."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings; they win over ours."""

    @property
    def is_local(self) -> bool:
        return self.master is None or self.master.startswith("local")


@contextmanager
def spark_session(
    log_path: Path,
    tasks: int,
    *,
    records: int,
    connector: Connector | None = None,
    options: SparkOptions = SparkOptions(),
) -> Iterator[SparkSession]:
    """A session in which `tasks` tasks run at once, stopped at the end. `records`: how much work it will get.
    `connector`: makes `format("kafka")` work in it.

    What the JVM and the Python workers on this machine print goes to `log_path`, so that the terminal shows our own
    lines. Raises JavaMissing, and SlotsMissing where the cluster runs fewer tasks at once.
    """
    java = find_java()
    spark = _start(java, log_path, tasks, records, connector, options)
    with tempfile.TemporaryDirectory(prefix="varve-pipeline-") as folder:
        try:
            if not options.is_local:
                # Executors fetch it from here, also those that come later.
                spark.sparkContext.addPyFile(_archive_package(folder))
            _await_slots(spark, tasks)
            yield spark
        except BaseException:
            # What ended the block is what counts: the JVM may be gone by the same signal, and unable to stop.
            with suppress(Exception):
                spark.stop()
            raise
        spark.stop()


def _start(
    java: JavaRuntime,
    log_path: Path,
    tasks: int,
    records: int,
    connector: Connector | None,
    options: SparkOptions,
) -> SparkSession:
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.Builder().appName("varve-pipeline").master(options.master or f"local[{tasks}]")
    if options.is_local:
        # Workers must be this interpreter; `python3` of the PATH would lack our packages.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # The name of this machine may not resolve, or resolve to an address that is not up.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            # The workers import `pipeline`, also where it is run from a checkout and not installed.
            .config("spark.executorEnv.PYTHONPATH", str(_PACKAGE.parent))
        )
    builder = (
        builder.config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A session time zone would change how timestamps compare and print.
        .config("spark.sql.session.timeZone", "UTC")
        # A second attempt of a loading task would send its records again, and so would one of its stage, which Spark
        # makes where an executor is lost.
        .config("spark.task.maxFailures", "1")
        .config("spark.stage.maxConsecutiveAttempts", "1")
        .config("spark.speculation", "false")
        .config("spark.sql.shuffle.partitions", str(2 * tasks))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    )
    if records <= _SHORT_JOB_RECORDS:
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    if connector is not None:
        builder = builder.config("spark.jars", ",".join(jar.as_uri() for jar in connector.jars))
    for name, value in options.conf.items():
        builder = builder.config(name, value)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    # Py4J logs an interrupted call with its stack, which tells the person who pressed Ctrl-C nothing.
    logging.getLogger().addHandler(logging.FileHandler(log_path))
    with _output_to(log_path):
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    # Spark's own handler asks the JVM to cancel its jobs in the middle of whatever call it interrupted, and
    # breaks the connection. We stop the session instead.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def _archive_package(folder: str) -> str:
    """This package as a file for executors, whose Python need not have it; the file's path."""
    return shutil.make_archive(f"{folder}/{_PACKAGE.name}", "zip", _PACKAGE.parent, _PACKAGE.name)


def _await_slots(spark: SparkSession, tasks: int) -> None:
    """Raises SlotsMissing. Without this, Spark would wait for executors that may never come."""
    context = spark.sparkContext._jsc.sc()  # the only way to ask: Python's API has none
    profile = context.resourceProfileManager().defaultResourceProfile()
    deadline_s = time.monotonic() + _SLOTS_TIMEOUT_S
    while (slots := context.maxNumConcurrentTasks(profile)) < tasks:
        if time.monotonic() > deadline_s:
            raise SlotsMissing(
                f"{tasks} tasks have to run at once, and Spark at {spark.sparkContext.master} has slots for {slots}:"
                f" use fewer producers, or give the job more cores (e.g. --conf spark.cores.max={tasks})"
            )
        time.sleep(0.2)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Point the standard output and error of processes started in the block to a file.

    The JVM inherits them at its start, and keeps them when ours are restored.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, kept in zip((1, 2), saved, strict=True):
            os.dup2(kept, descriptor)
            os.close(kept)
        os.close(log)
