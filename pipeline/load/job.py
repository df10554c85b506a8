"""The loading job: send a run's records, and write down which were acknowledged, where and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.circumstances import circumstances
from pipeline.cluster import Cluster
from pipeline.errors import ClusterUnavailable, PipelineError
from pipeline.load.over_time import write_over_time
from pipeline.load.producer_task import DELIVERY_SCHEMA_SQL, ProducerSettings, producing
from pipeline.load.progress import DriverLines, LineAddress, Progress
from pipeline.producer import ProducerError, ReliableProducer, RetryPolicy
from pipeline.producer.settings import without_aliases
from pipeline.run_files import ABORTED, CONFIG, LOG, deliveries_uri, write_json
from pipeline.summary import update_summary
from pipeline.workloads.records import key_column, timestamp_ms_column, value_column
from pipeline.workloads.spec import FORMAT, RunSpec

#: Settings of producers that the job decides, by their first names, and what to do instead.
_OF_THE_JOB: Mapping[str, str] = {
    "bootstrap.servers": "the run is verified where it was loaded; give --bootstrap-server",
    "delivery.timeout.ms": "the job waits as long for its last records; give --message-timeout-ms",
    "transactional.id": "a workload says whether its producers have transactions",
    "transaction.timeout.ms": "it follows --message-timeout-ms",
}
# Of producers that are made to be judged, and send nothing.
_NO_LINE = LineAddress("", 0, b"")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    bootstrap_server: str
    run: Path
    """The folder to write; must be new or empty."""
    compression: str = "none"
    linger_ms: float = 5.0
    message_timeout_ms: int = 120_000
    warm_up_s: int = 2
    """Records intended in the first seconds are left out of `latency_ms` (kept in the files)."""
    partitions: int = 3
    replication_factor: int = 3
    topic_config: Mapping[str, str] = field(default_factory=dict)
    """All three for topics that have to be created."""
    producer_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka that win over those above and over the baseline of `pipeline.producer`."""
    deliveries: str | None = None
    """The URI of a folder that does not exist, for what executors write; None: the run's folder, which has to be the
    same on all machines then."""

    def for_run(self, run: Path) -> LoadOptions:
        """The same for another run that belongs to this one; deliveries that are elsewhere get a folder beside."""
        deliveries = self.deliveries and f"{self.deliveries.rstrip('/')}-{run.name}"
        return replace(self, run=run, deliveries=deliveries)

    def producer_settings(self, line: LineAddress) -> ProducerSettings:
        return ProducerSettings(
            self.bootstrap_server,
            self.compression,
            self.linger_ms,
            self.message_timeout_ms,
            line,
            self.producer_config,
        )


class Watcher(Protocol):
    """Who is told how a load comes on."""

    def progressed(self, progress: Progress) -> None:
        """Tasks have sent, or heard of, this much. Called by another thread."""

    def begins(self, phase: str) -> None:
        """What the job does from now on, after the sending."""


def load(spark: SparkSession, spec: RunSpec, options: LoadOptions, watcher: Watcher) -> dict[str, Any]:
    """Run the job; gives the "load" section of summary.json. Raises PipelineError.

    That records failed is a result, not an error: see "failed" and "unreported". So is Ctrl-C: the producers send no
    more, and what they have sent is reported ("interrupted"). Another Ctrl-C ends the wait for that.
    """
    check_producer_config(options)
    run = options.run
    make_run_folder(run)
    cluster = Cluster(options.bootstrap_server)
    ensure_topics(cluster, spec, options)
    config = _config(spec, options, _ends(cluster, spec))
    write_json(run / CONFIG, config)
    driver = spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
    assert driver is not None, "it has a default"
    with DriverLines(driver, watcher.progressed) as lines:
        settings = options.producer_settings(lines.address)
        # Written at once and read back: to evaluate this frame a second time would send every record again.
        sending = inputs(spark, spec).mapInArrow(producing(spec, settings), DELIVERY_SCHEMA_SQL, barrier=True)
        is_interrupted = _run_to_the_end(
            lambda: sending.write.parquet(deliveries_uri(run)), lines.order_stop, watcher
        )
    # At once: what another run sends from here on is not this one's. They stay null where the cluster does not answer:
    # it may be gone.
    with suppress(ClusterUnavailable):
        write_json(run / CONFIG, config | {"end_offsets": _ends(cluster, spec)})
    watcher.begins("evaluating the acknowledgements")
    deliveries = spark.read.schema(DELIVERY_SCHEMA_SQL).parquet(deliveries_uri(run)).cache()
    try:
        section = summarize(spec, options, deliveries)
    finally:
        deliveries.unpersist()
    reported = section["acknowledged"] + section["aborted"] + section["failed"]
    if reported < lines.totals.acknowledged + lines.totals.failed:
        raise PipelineError(
            f"{deliveries_uri(run)} lacks what executors wrote there: it must be the same folder on all machines of the"
            " cluster; --deliveries can name one that is (s3a://..., hdfs://...)"
        )
    section["interrupted"] = is_interrupted
    update_summary(run, "load", section)
    return section


def check_producer_config(options: LoadOptions) -> None:
    """Raises PipelineError where producers could not be made with `producer_config`, before anything is started."""
    try:
        for key in without_aliases(options.producer_config):
            if key in _OF_THE_JOB:
                raise PipelineError(f"{key} cannot be a producer's setting here: {_OF_THE_JOB[key]}")
        config = options.producer_settings(_NO_LINE).client_config()
        ReliableProducer(config, breaker=None, retries=RetryPolicy(max_attempts=1)).close(0)
    except ProducerError as error:
        raise PipelineError(str(error)) from error


def _run_to_the_end(job: Callable[[], None], order_stop: Callable[[], None], watcher: Watcher) -> bool:
    """Run a Spark job in a thread of its own, as this one takes Ctrl-C. Then the job is asked to stop and has its end
    awaited all the same. True: it was asked."""
    failures: list[BaseException] = []
    # An event, since a thread whose `join` was interrupted once counts as ended (Python 3.11).
    done = threading.Event()

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    InheritableThread(run, daemon=True).start()
    is_interrupted = False
    try:
        done.wait()
    except KeyboardInterrupt:
        is_interrupted = True
        order_stop()
        watcher.begins("interrupted: waiting for what is under way (Ctrl-C gives it up)")
        done.wait()
    if failures:
        raise failures[0]
    return is_interrupted


def ensure_topics(cluster: Cluster, spec: RunSpec, options: LoadOptions) -> None:
    """Create those topics of the run that do not exist. Raises ClusterUnavailable."""
    for topic in spec.topic_names:
        cluster.ensure_topic(
            topic, options.partitions, options.replication_factor, config=options.topic_config
        )


def _ends(cluster: Cluster, spec: RunSpec) -> dict[str, dict[str, int]]:
    """Where each partition of each topic ends now."""
    return {
        topic: {str(partition): end for partition, (_, end) in cluster.offsets(topic).items()}
        for topic in spec.topic_names
    }


def make_run_folder(run: Path) -> None:
    """Make the folder of a new run. Raises PipelineError where it holds something, other than this run's own log, or
    cannot be written."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOG for path in run.iterdir()):
            raise PipelineError(f"{run} holds a run already; choose another --out")
        (run / LOG).touch()
    except OSError as error:
        raise PipelineError(f"{run} cannot be the folder of a run: {error.strerror}") from error


def inputs(spark: SparkSession, spec: RunSpec) -> DataFrame:
    """The run's records. Partition t of the frame holds what the producers of task t own, in order."""
    padded = spec.records_per_task
    # `range` cuts its numbers into equal slices, here [t * padded, (t + 1) * padded) for slice t.
    numbers = spark.range(0, padded * spec.tasks, 1, spec.tasks)
    task, turn = F.floor(F.col("id") / padded).cast("bigint"), F.col("id") % padded
    owned = numbers.select((turn * spec.tasks + task).alias("sequence"))
    sequence = F.col("sequence")
    return owned.where(sequence < spec.records).select(
        sequence,
        key_column(spec, sequence).alias("key"),
        value_column(spec, sequence).alias("value"),
        timestamp_ms_column(spec, sequence).alias("timestamp_ms"),
    )


def summarize(spec: RunSpec, options: LoadOptions, deliveries: DataFrame) -> dict[str, Any]:
    """Figures of the run from its delivery reports; writes the latency and throughput files."""
    acknowledged = deliveries.where("error is null")
    totals = deliveries.agg(
        F.count("*").alias("reported"),
        F.count_if(F.col("error").isNull()).alias("acknowledged"),
        F.count_if(F.col("error") == ABORTED).alias("aborted"),
        F.sum(F.when(F.col("error").isNull(), F.col("value_bytes"))).alias("value_bytes"),
        F.min("intended_at_us").alias("start_us"),
        F.max("acknowledged_at_us").alias("end_us"),
    ).first()
    assert totals is not None, "an aggregate without groups has one row"
    is_failure = F.col("error").isNotNull() & (F.col("error") != ABORTED)
    errors = deliveries.where(is_failure).groupBy("error").count().orderBy(F.desc("count")).limit(5)
    section: dict[str, Any] = {
        "records": spec.records,
        "acknowledged": totals["acknowledged"],
        "aborted": totals["aborted"],
        "failed": totals["reported"] - totals["acknowledged"] - totals["aborted"],
        "unreported": spec.records - totals["reported"],
        "errors": {row["error"]: row["count"] for row in errors.collect()},
    }
    if totals["acknowledged"] == 0:
        return section
    duration_s = (totals["end_us"] - totals["start_us"]) / 1e6
    section |= {
        "duration_s": duration_s,
        "records_per_s": totals["acknowledged"] / duration_s,
        "megabytes_per_s": totals["value_bytes"] / duration_s / 1e6,
        **write_over_time(acknowledged, options.run, totals["start_us"], options.warm_up_s),
    }
    return section


def _config(spec: RunSpec, options: LoadOptions, start_offsets: dict[str, dict[str, int]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "spec": spec.to_json(),
        "run_id": spec.run_id,
        "options": asdict(options) | {"run": str(options.run)},
        # Where the run begins and ends in each partition: what others sent before and after is not judged.
        "start_offsets": start_offsets,
        "end_offsets": None,
        **circumstances(),
    }
