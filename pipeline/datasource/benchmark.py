"""How fast a topic is read by this data source, and by Spark's own connector.

python -m pipeline.datasource.benchmark --bootstrap-server localhost:19092 --topic orders
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.spark.connector import find_connector
from pipeline.spark.session import spark_session

# Enough to let the JVM compile as it does in long jobs.
_LONG_JOB_RECORDS = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.datasource.benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument(
        "--topic", required=True, help="a topic that holds records, and that nobody writes to"
    )
    parser.add_argument("--runs", type=int, default=5, help="of each, in turn, after one that is not counted")
    parser.add_argument("--tasks", type=int, default=2, help="Spark tasks at a time")
    arguments = parser.parse_args()
    # The directory keeps Spark's log for the run only.
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "spark.log"
        connector = find_connector()
        print(f"read by {connector.source}")
        with spark_session(log, arguments.tasks, records=_LONG_JOB_RECORDS, connector=connector) as spark:
            measure(spark, arguments.bootstrap_server, arguments.topic, arguments.runs)


def measure(spark: SparkSession, bootstrap_server: str, topic: str, runs: int) -> None:
    """Print records per second of each way of reading, all runs, and the ratio of the medians."""
    sources = {
        "kafka": reading(spark, "kafka", bootstrap_server, topic),
        "kafka, kafka.max.poll.records=5000": reading(
            spark, "kafka", bootstrap_server, topic, **{"kafka.max.poll.records": "5000"}
        ),
        "varve": reading(spark, "varve", bootstrap_server, topic),
    }
    records = {name: frame.count() for name, frame in sources.items()}
    if len(set(records.values())) != 1 or 0 in records.values():
        raise SystemExit(f"the ways of reading must see the same records: {records}")
    seconds: dict[str, list[float]] = {name: [] for name in sources}
    for run in range(runs + 1):
        for name, frame in sources.items():
            started = time.monotonic()
            # Every column of every record, and nothing done with them.
            frame.write.format("noop").mode("overwrite").save()
            if run:
                seconds[name].append(time.monotonic() - started)
    medians = {name: records[name] / statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        rates = ", ".join(f"{records[name] / each:,.0f}" for each in times)
        print(f"{name}: {medians[name]:,.0f} records/s in the median of {rates}")
    print(
        f"varve reads at {medians['varve'] / medians['kafka']:.2f} of kafka's rate ({records['varve']:,} records)"
    )


def reading(spark: SparkSession, source: str, bootstrap_server: str, topic: str, **options: str) -> DataFrame:
    """The whole topic, from the earliest offset to what is the latest when it is read."""
    given = {"kafka.bootstrap.servers": bootstrap_server, "subscribe": topic, **options}
    return spark.read.format(source).options(**given).load()


if __name__ == "__main__":
    main()
