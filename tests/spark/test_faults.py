"""Nodes and drivers that are killed while a query reads or writes: every acknowledged record once, in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.harness import ROOT, BrokerCluster, eventually
from tests.spark.options import FROM_START
from tests.spark.target import LIMIT_S, Target, numbers
from tests.spark.test_sink import received

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow


class Writing:
    """Ten records at a time, each acknowledged before the next ten, until it is told to end."""

    def __init__(self, target: Target, topic: str) -> None:
        self.acknowledged = 0
        self._target = target
        self._topic = topic
        self._producer = target.producer(enable_idempotence="true")
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            values = numbers(self.acknowledged, self.acknowledged + 10)
            self._target.write(self._topic, values, producer=self._producer)
            self.acknowledged += 10
            self._stop.wait(0.05)

    def wait_for(self, more: int) -> None:
        wanted = self.acknowledged + more
        eventually(lambda: self.acknowledged >= wanted, f"{more} more acknowledged", LIMIT_S)

    def end(self) -> None:
        self._stop.set()
        self.thread.join(LIMIT_S)


@contextmanager
def writing(target: Target, topic: str) -> Iterator[Writing]:
    writer = Writing(target, topic)
    writer.thread.start()
    try:
        yield writer
    finally:
        writer.end()


@contextmanager
def brought_back(nodes: BrokerCluster, node_id: int) -> Iterator[None]:
    """The other tests need the node."""
    try:
        yield
    finally:
        nodes.start(node_id)


def test_leader_killed_under_a_stream(
    target: Target,
    nodes: BrokerCluster,
    reader: Reader,
    name: str,
    offset_fetching: str,
) -> None:
    """Traps 4 and 9: the end never goes back, and what a client was told is there is read, once."""
    target.create(name)
    stream = reader.stream(subscribe=name, **FROM_START).start()
    with writing(target, name) as writer:
        stream.wait_for(30)
        leader = nodes.leader_of(name)
        with brought_back(nodes, leader):
            nodes.kill(leader)
            writer.wait_for(50)
            seen = len(stream.rows)
            stream.wait_for(seen + 30)
    stream.catch_up()
    assert stream.values == numbers(0, writer.acknowledged)
    assert [row.offset for row in stream.rows] == list(range(writer.acknowledged))


def test_all_nodes_killed_between_two_batches(
    target: Target, nodes: BrokerCluster, reader: Reader, name: str
) -> None:
    """Trap 4: a stream that comes back asks brokers that have all just started."""
    target.create(name)
    target.write(name, numbers(0, 20))
    stream = reader.stream(subscribe=name, maxOffsetsPerTrigger="10", **FROM_START).start().catch_up().stop()
    nodes.kill()
    nodes.start()
    target.wait_led(name, 1)
    stream.start().catch_up()
    assert stream.values == numbers(0, 20)
    target.write(name, numbers(20, 25))
    assert stream.catch_up().values == numbers(0, 25)


def test_leader_killed_under_a_sink(target: Target, nodes: BrokerCluster, reader: Reader, name: str) -> None:
    """One task, so that the order of the sink is the order of its rows. The producer is idempotent by default."""
    target.create(name)
    count = 150_000
    frame = reader.spark.range(count).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    options = {"kafka.bootstrap.servers": target.bootstrap, "topic": name, "kafka.batch.size": "1000"}
    failed: list[BaseException] = []

    def save() -> None:
        try:
            frame.write.format("kafka").options(**options).save()
        except Exception as error:
            failed.append(error)

    saving = threading.Thread(target=save)
    leader = nodes.leader_of(name)
    saving.start()
    with brought_back(nodes, leader):
        eventually(lambda: target.ends(name)[0] > 100, "the first records", LIMIT_S)
        nodes.kill(leader)
        assert saving.is_alive(), "all was written before the leader was killed"
        saving.join(2 * LIMIT_S)
    assert not failed, failed
    assert [int(message.value() or b"") for message in received(target, name)] == list(range(count))


# -- the driver ----------------------------------------------------------------------------------------------


class Driver:
    """Another process with a session of its own, which runs a query from topic to files and topic: `driver.py`."""

    def __init__(self, target: Target, source: str, sink: str, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.spark.driver", target.bootstrap, source, sink, str(folder)]
        with (folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def batches(self) -> set[int]:
        """Those that the checkpoint calls done."""
        return {int(path.name) for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*")}

    def wait_until(self, is_reached: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            assert self.process.poll() is None, (self.folder / "driver.log").read_text()[-3000:]
            return is_reached()

        eventually(look, what, 3 * LIMIT_S)

    def kill(self) -> None:
        """SIGKILL for Python and its JVM together, as when the machine of a driver is lost."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)


def test_driver_killed_and_started_again(target: Target, reader: Reader, name: str, tmp_path: Path) -> None:
    """Files, whose sink knows batches, get each record once. The Kafka sink is at least once: nothing is lost, and only
    the batch in flight may come twice."""
    total, per_batch = 400, 20
    target.create(f"{name}-in")
    target.create(f"{name}-out")
    target.write(f"{name}-in", numbers(0, total // 2))
    first = Driver(target, f"{name}-in", f"{name}-out", tmp_path)
    try:
        first.wait_until(lambda: len(first.batches()) >= 3, "three batches")
    finally:
        first.kill()
    done_before = first.batches()
    target.write(f"{name}-in", numbers(total // 2, total))
    second = Driver(target, f"{name}-in", f"{name}-out", tmp_path)
    try:
        second.wait_until(lambda: len(second.batches()) >= total // per_batch, "the last batch")
    finally:
        second.kill()
    assert done_before < second.batches()
    rows = reader.spark.read.parquet(str(tmp_path / "files")).sort("offset").collect()
    assert [row.offset for row in rows] == list(range(total))
    assert [row.value for row in rows] == numbers(0, total)
    counts = Counter((message.value() or b"").decode() for message in received(target, f"{name}-out"))
    assert sorted(counts) == sorted(numbers(0, total))
    assert max(counts.values()) <= 2
    assert sum(counts.values()) - total <= per_batch
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(newest.read_text().splitlines()[-1]) == {f"{name}-in": {"0": total}}
