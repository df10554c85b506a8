"""The job: queries run, records are fed, faults happen; then the topics are read back and judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.circumstances import circumstances
from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.load.over_time import longest_gap, write_over_time
from pipeline.run_files import CONFIG, deliveries_uri, write_json
from pipeline.spark.session import SparkOptions
from pipeline.streaming.driver import Batch, QueryProcess
from pipeline.streaming.faults import Faults
from pipeline.streaming.feed import Feed
from pipeline.streaming.judge import Evidence, Verdict, judge
from pipeline.streaming.query import TRANSFORM, QueryOptions, Sink
from pipeline.streaming.spec import StreamSpec, Topics
from pipeline.summary import update_summary
from pipeline.trials.local_cluster import LocalCluster
from pipeline.verify.results import write_checks

# What the queries may take after the last record to reach it, a restart of their driver included.
_CATCH_UP_TIMEOUT_S = 300.0
_POLL_S = 0.5
_LOG = "query.log"
_CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    bootstrap_server: str
    run: Path
    """The folder to write; made by `load.job.make_run_folder`."""
    duration_s: float
    rate_per_s: float = 1000.0
    keys: int = 100
    seed: int = 1
    record_size_bytes: int = 200
    sink: Sink = "kafka"
    trigger_ms: int = 500
    warm_up_s: int = 10
    """Records of the first seconds are left out of the latency figures: the JVM compiles its first batches."""
    kill_every_s: float | None = None
    restarts_driver: bool = False
    partitions: int = 3
    replication_factor: int = 3
    where: SparkOptions = SparkOptions()
    """On a cluster, the run's folder has to be on a file system that all its nodes share: it has the checkpoints."""

    def spec(self, name: str, start_timestamp_ms: int) -> StreamSpec:
        """Of the run whose topics' names begin with `name`."""
        return StreamSpec(
            name,
            int(self.duration_s * self.rate_per_s),
            self.rate_per_s,
            self.record_size_bytes,
            self.keys,
            self.seed,
            start_timestamp_ms,
        )


@dataclass(slots=True)
class Streamed:
    """What is known when the stream has ended, before anything is judged."""

    spec: StreamSpec
    feed: Feed
    faults: Faults
    batches: list[Batch]


Watcher = Callable[[Feed, list[Batch]], None]
"""Told twice a second how the feed and the queries come on."""


def stream(
    options: StreamOptions,
    name: str,
    cluster: LocalCluster | None,
    say: Callable[[str], None],
    watcher: Watcher,
) -> Streamed:
    """Feed the source topic and let the queries run, with the faults; `name`: what the topics' names begin with.

    Raises PipelineError where the queries fail or do not catch up. Whatever ends it, no process is left.
    """
    topics = Topics.named(name)
    _create_topics(options, topics)
    batches: list[Batch] = []
    query_options = QueryOptions(
        options.bootstrap_server, topics, options.run / _CHECKPOINTS, options.sink, options.trigger_ms
    )
    records = options.spec(name, 0).records
    say("starting Spark and the queries")
    with QueryProcess(
        query_options, name, options.run / _LOG, records, options.where, batches.append
    ) as queries:
        # Records are due from now on: the queries run, and wait for them.
        spec = options.spec(name, int(time.time() * 1000) + 1000)
        write_json(options.run / CONFIG, _config(spec, options))
        say(f"feeding {spec.records:,} records at {spec.rate_per_s:,.0f}/s into {topics.source}")
        feed = Feed(spec, options.bootstrap_server)
        faults = Faults(
            cluster,
            topics,
            queries,
            options.duration_s,
            options.kill_every_s,
            options.restarts_driver,
            say,
        )
        feed.start()
        faults.start()
        try:
            _watch(feed, faults, queries, batches, watcher)
            faults.end()
        except BaseException:
            feed.stop()
            raise
        say("all is fed: waiting until the queries have caught up")
        ends = {
            str(p): end for p, (_, end) in Cluster(options.bootstrap_server).offsets(topics.source).items()
        }
        queries.wait_caught_up(ends, _CATCH_UP_TIMEOUT_S)
    return Streamed(spec, feed, faults, batches)


def _create_topics(options: StreamOptions, topics: Topics) -> None:
    cluster = Cluster(options.bootstrap_server)
    for topic in topics.all:
        # When the sink topic took a record is the broker's to say: the producer would tell when it was made.
        config = {"message.timestamp.type": "LogAppendTime"} if topic == topics.sink else None
        if not cluster.ensure_topic(topic, options.partitions, options.replication_factor, config):
            raise PipelineError(f"topic {topic} exists already; what others wrote there cannot be judged")


def _watch(feed: Feed, faults: Faults, queries: QueryProcess, batches: list[Batch], watcher: Watcher) -> None:
    """Until all is fed. Raises what went wrong meanwhile, as soon as it does."""
    while feed.is_alive():
        feed.join(_POLL_S)
        watcher(feed, batches)
        for failure in (feed.failure, faults.failure):
            if failure is not None:
                raise failure
        queries.check()
    if feed.failure is not None:
        raise feed.failure


def conclude(
    spark: SparkSession, options: StreamOptions, streamed: Streamed, source_of_jars: str
) -> tuple[dict[str, Any], Verdict]:
    """Read everything back, judge it, and write the run's files; gives the section "stream" of summary.json, too."""
    run, spec = options.run, streamed.spec
    streamed.feed.write(run)
    read = {topic: _read(spark, options, topic).cache() for topic in spec.topics.all}
    deliveries = spark.read.parquet(deliveries_uri(run)).cache()
    try:
        evidence = Evidence(
            deliveries, read[spec.topics.source], read[spec.topics.sink], read[spec.topics.counts]
        )
        repeats = streamed.faults.repeats if options.sink == "kafka" else []
        verdict = judge(evidence, spec, repeats)
        arrivals = _arrivals(evidence.sink, spec).cache()
        section = _figures(options, streamed, verdict, arrivals)
        if streamed.faults.events:
            gap = longest_gap(arrivals, since_us=streamed.faults.events[0]["at_us"])
            update_summary(run, "fault", {"events": streamed.faults.events, "gap": gap})
        records_read = sum(frame.count() for frame in read.values())
    finally:
        for frame in (*read.values(), deliveries):
            frame.unpersist()
    update_summary(run, "stream", section)
    checks = [check.to_json() for check in verdict.checks]
    write_checks(run, verdict.checks)
    update_summary(
        run,
        "verify",
        {
            "passed": verdict.passed,
            "read_by": f"Spark's official connector ({source_of_jars})",
            "records_read": records_read,
            "checks": checks,
        },
    )
    return section, verdict


def _read(spark: SparkSession, options: StreamOptions, topic: str) -> DataFrame:
    """The whole topic, as a reader of committed records sees it."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_server)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", "5000")
        .option("subscribe", topic)
        .load()
    )


def _arrivals(sink: DataFrame, spec: StreamSpec) -> DataFrame:
    """When each record first came to the sink topic, and how long after it was meant to be fed."""
    claimed = F.get_json_object(F.col("value").cast("string"), "$.sequence").try_cast("bigint")
    first = (
        sink.select(
            "topic", "partition", "timestamp", claimed.alias("sequence"), F.length("value").alias("bytes")
        )
        .where(F.col("sequence").between(0, spec.records - 1))
        .groupBy("sequence")
        .agg(F.min_by(F.struct("topic", "partition", "timestamp", "bytes"), "timestamp").alias("first"))
    )
    intended_us = spec.timestamp_ms_column(F.col("sequence")) * 1000
    arrived_us = F.unix_millis("first.timestamp") * 1000
    return first.select(
        "first.topic",
        "first.partition",
        F.col("first.bytes").alias("value_bytes"),
        intended_us.alias("intended_at_us"),
        arrived_us.alias("acknowledged_at_us"),
        (arrived_us - intended_us).alias("latency_us"),
    )


def _figures(
    options: StreamOptions, streamed: Streamed, verdict: Verdict, arrivals: DataFrame
) -> dict[str, Any]:
    """The section; writes the latency and throughput files, whose seconds count from the first record's."""
    spec = streamed.spec
    start_us = spec.start_timestamp_ms * 1000

    ends = arrivals.agg(F.count("*"), F.max("acknowledged_at_us")).first()
    assert ends is not None, "an aggregate without groups has one row"
    arrived, end_us = ends[0], ends[1] or start_us
    duration_s = (end_us - start_us) / 1e6
    durations = sorted(batch["duration_ms"] for batch in streamed.batches if batch["query"] == TRANSFORM)
    return {
        "records": spec.records,
        "acknowledged": streamed.feed.acknowledged,
        "failed": streamed.feed.failed,
        "arrived": arrived,
        "repeated": verdict.repeated,
        "duration_s": duration_s,
        "records_per_s": arrived / duration_s if duration_s else 0.0,
        **write_over_time(arrivals, options.run, start_us, options.warm_up_s),
        "batches": len(durations),
        "batch_ms": {
            "p50": durations[len(durations) // 2],
            "max": durations[-1],
        }
        if durations
        else None,
        "broker_kills": streamed.faults.broker_kills,
        "driver_kills": streamed.faults.driver_kills,
        "repeated_batches": [asdict(repeat) for repeat in streamed.faults.repeats],
    }


def _config(spec: StreamSpec, options: StreamOptions) -> dict[str, Any]:
    return {
        "spec": spec.to_json(),
        "run_id": spec.run_id,
        "options": asdict(options) | {"run": str(options.run)},
        **circumstances(),
    }
