"""How large the internal logs become, and how long a start takes then: many changes of one topic's settings, and many
commits of some groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import ClusterError, VarveCluster
from benchmarks.report import number

TOPIC = "internal-logs"
GROUPS = 100
#: Partitions in one commit; each is a record of its own.
PARTITIONS = 10
#: Changes that are under way at a time.
AT_A_TIME = 200
TIMEOUT_S = 60.0
#: Passes come every five minutes otherwise.
SETTINGS = ("varve.compaction.initial.delay.ms=2000", "varve.compaction.interval.ms=5000")


@dataclass
class Stage:
    name: str
    metadata_mb: float
    offsets_mb: float
    #: From the command that starts the stopped nodes until all of them answer.
    start_s: float
    seconds: float


def measure_internal_logs(
    cluster: VarveCluster, changes: int, commits: int, log: Callable[[str], None]
) -> list[Stage]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
    _commit(cluster, GROUPS * PARTITIONS)
    stages = [_stage(cluster, "one commit of each group", 0.0)]
    for name, count, work in (
        (f"{changes:,} changes of settings", changes, _change),
        (f"{commits:,} committed offsets", commits, _commit),
    ):
        log(name)
        began_s = time.monotonic()
        work(cluster, count)
        took_s = time.monotonic() - began_s
        _wait_until_small(cluster, log)
        stages.append(_stage(cluster, f"after {name}", took_s))
    return stages


def _stage(cluster: VarveCluster, name: str, seconds: float) -> Stage:
    metadata_mb, offsets_mb = _sizes_mb(cluster)
    cluster.run("cluster", "down")
    began_s = time.monotonic()
    cluster.run("cluster", "up", *cluster.options)
    return Stage(name, metadata_mb, offsets_mb, time.monotonic() - began_s, seconds)


def _wait_until_small(cluster: VarveCluster, log: Callable[[str], None]) -> None:
    """Until two passes have found nothing more to do."""
    log("compacting")
    sizes = [_sizes_mb(cluster)]
    while len(sizes) < 4 or len(set(sizes[-3:])) > 1:
        if len(sizes) > 30:
            raise ClusterError(f"the internal logs do not come to rest: {sizes[-3:]} MB")
        time.sleep(6)
        sizes.append(_sizes_mb(cluster))


def _sizes_mb(cluster: VarveCluster) -> tuple[float, float]:
    """Of the largest node: metadata, and all partitions of the offsets."""
    return (
        max(map(_size_mb, cluster.node_folders("__cluster_metadata-*"))),
        max(map(_size_mb, cluster.node_folders("__consumer_offsets-*"))),
    )


def _size_mb(folders: list[Path]) -> float:
    """Segments, indexes and snapshots; not what waits to be deleted."""
    sizes = (
        path.stat().st_size
        for folder in folders
        for path in folder.iterdir()
        if path.is_file() and path.suffix != ".deleted"
    )
    return round(sum(sizes) / 1e6, 2)


def _change(cluster: VarveCluster, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    open_changes: list[Any] = []
    for at in range(count):
        value = str(60_000 + at)
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        open_changes += admin.incremental_alter_configs([resource]).values()
        if len(open_changes) == AT_A_TIME:
            _finish(open_changes)
    _finish(open_changes)


def _finish(futures: list[Any]) -> None:
    for future in futures:
        future.result(TIMEOUT_S)
    futures.clear()


def _commit(cluster: VarveCluster, count: int) -> None:
    consumers = [_consumer(cluster, f"group-{at}") for at in range(GROUPS)]
    for offset in range(1, count // (GROUPS * PARTITIONS) + 1):
        places = [TopicPartition(TOPIC, partition, offset) for partition in range(PARTITIONS)]
        for consumer in consumers:
            consumer.commit(offsets=places, asynchronous=True)
        if offset % 20 == 0:
            _settle(consumers)
    _settle(consumers)
    for consumer in consumers:
        consumer.close()


def _consumer(cluster: VarveCluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def _settle(consumers: list[Consumer]) -> None:
    """Until the last commit of each is answered."""
    for consumer in consumers:
        for _ in _attempts():
            try:
                found = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
            except KafkaException:
                continue
            if found[0].error is None:
                break


def _attempts() -> Iterator[None]:
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        yield
    raise ClusterError("a group's offsets cannot be read")


def print_stages(stages: list[Stage], out: Console) -> None:
    table = Table("state", box=box.SIMPLE)
    for column in ("__cluster_metadata MB", "__consumer_offsets MB", "start s", "work s"):
        table.add_column(column, justify="right")
    for stage in stages:
        figures = (stage.metadata_mb, stage.offsets_mb, stage.start_s, stage.seconds)
        table.add_row(stage.name, *map(number, figures))
    out.print(table)
