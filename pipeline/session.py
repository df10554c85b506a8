"""The local Spark session of the jobs: quiet, on loopback, with the right Java and the right Python."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.java_runtime import JavaRuntime, find_java

# Up to here the optimizing compiler costs more CPU than it saves (100,000 records: 48 s of the JVM against 28 s),
# and takes it from the brokers that are being measured.
_SHORT_JOB_RECORDS = 1_000_000


@contextmanager
def spark_session(log_path: Path, tasks: int, *, records: int) -> Iterator[SparkSession]:
    """A local session that runs `tasks` tasks at once, stopped at the end. `records`: how much work it will get.

    What the JVM, Ivy and the Python workers print goes to `log_path`, so that the terminal shows our own lines.
    Raises JavaMissing.
    """
    java = find_java()
    spark = _start(java, log_path, tasks, records)
    try:
        yield spark
    except BaseException:
        # What ended the block is what counts: the JVM may be gone by the same signal, and unable to stop.
        with suppress(Exception):
            spark.stop()
        raise
    spark.stop()


def _start(java: JavaRuntime, log_path: Path, tasks: int, records: int) -> SparkSession:
    os.environ["JAVA_HOME"] = str(java.home)
    # Workers must be this interpreter; `python3` of the PATH would lack our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The name of this machine may not resolve, or resolve to an address that is not up.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    package_root = str(Path(__file__).resolve().parent.parent)
    builder = (
        SparkSession.Builder()
        .master(f"local[{tasks}]")
        .appName("varve-pipeline")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A session time zone would change how timestamps compare and print.
        .config("spark.sql.session.timeZone", "UTC")
        # The workers import `pipeline`, also where it is run from a checkout and not installed.
        .config("spark.executorEnv.PYTHONPATH", package_root)
        # A second attempt of a loading task would send its records again.
        .config("spark.task.maxFailures", "1")
        .config("spark.speculation", "false")
        .config("spark.sql.shuffle.partitions", str(2 * tasks))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    )
    if records <= _SHORT_JOB_RECORDS:
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
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
