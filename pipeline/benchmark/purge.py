"""A repartition topic: a stream reads what comes, and what it has read is deleted, as KIP-811 has it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.cluster import Cluster
from pipeline.datasource import VarveDataSource
from pipeline.load.bar import load_bar
from pipeline.load.job import LoadOptions, ensure_topics, load
from pipeline.summary import update_summary
from pipeline.verify.results import CheckResult, passed
from pipeline.workloads.spec import RunSpec

#: Kafka Streams' default is 30 s; more often shows more within a short run.
_PURGE_INTERVAL_MS = 1000


def load_and_purge(
    spark: SparkSession, spec: RunSpec, options: LoadOptions, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The "load" section, and a "verify" section that says whether the stream saw every record before it was purged.
    Raises PipelineError."""
    cluster = Cluster(options.bootstrap_server)
    ensure_topics(cluster, spec, options)
    spark.dataSource.register(VarveDataSource)
    seen = 0

    def count(batch: DataFrame, _: int) -> None:
        nonlocal seen
        seen += batch.count()

    source = {
        "kafka.bootstrap.servers": options.bootstrap_server,
        "subscribe": ",".join(spec.topic_names),
        "startingOffsets": "earliest",
        "repartition.purge.interval.ms": str(_PURGE_INTERVAL_MS),
    }
    with tempfile.TemporaryDirectory(prefix="varve-purge-") as checkpoint:
        stream = spark.readStream.format("varve").options(**source).load()
        query = (
            stream.writeStream.foreachBatch(count)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        try:
            with load_bar(spec.records) as bar:
                loaded = load(spark, spec, options, bar)
            query.processAllAvailable()
        finally:
            query.stop()
    starts = {topic: cluster.offsets(topic) for topic in spec.topic_names}
    purged = sum(start for partitions in starts.values() for start, _ in partitions.values())
    say(f"purged: {purged:,} of {loaded['acknowledged']:,} records; the last batches are kept")
    section = _judge(loaded["acknowledged"], seen, purged)
    update_summary(options.run, "verify", section)
    return loaded, section


def _judge(acknowledged: int, seen: int, purged: int) -> dict[str, Any]:
    status = {True: "PASS", False: "FAIL"}
    checks = [
        CheckResult(
            "acknowledged records seen by the stream", acknowledged, seen, status[seen == acknowledged], []
        ),
        # How many is a matter of timing: the commit of a batch comes with the next one. None means that it did nothing.
        CheckResult("purges that deleted nothing", 0, int(purged == 0), status[purged > 0], []),
    ]
    return {
        "passed": passed(checks),
        "read_by": 'a stream of format("varve")',
        "records_read": seen,
        "ranges": {},
        "compaction": None,
        "checks": [check.to_json() for check in checks],
    }
