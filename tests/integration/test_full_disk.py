"""A full disk: produce is refused, nothing acknowledged is lost, deleting a topic brings service back."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_wire import batch
from tests.integration.wire import Wire, records_of

DISK_BYTES = 48 << 20
VALUE_BYTES = 500_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this container may not mount")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def use_up(path: Path) -> Path:
    """A file of another program takes all that is left of the volume. Returns it."""
    other = path / "other"
    with other.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    assert os.statvfs(path).f_bavail == 0
    return other


def fill(wire: Wire, topic: str) -> int:
    """Produce until refused; returns how many records were acknowledged."""
    for number in range(2 * DISK_BYTES // VALUE_BYTES):
        answer = wire.produce(topic, batch(1, b"%08d" % number + b"x" * VALUE_BYTES))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return number
        assert answer.base_offset == number
    raise AssertionError("the disk was never full")


# 8 MB: refused by the reserve. 0: refused by the write that does not fit.
@pytest.mark.parametrize("reserve_bytes", [pytest.param(8 << 20, marks=pytest.mark.slow), 0])
def test_what_was_acknowledged_stays_and_deleting_helps(small_disk: Path, reserve_bytes: int) -> None:
    cluster = BrokerCluster(small_disk / "cluster", 1, log__min__free__bytes=str(reserve_bytes))
    try:
        cluster.start()
        with cluster.wire() as wire:
            assert wire.create("filler", replicas=1).error_code == 0
        cluster.leader_of("filler")
        with cluster.wire() as wire:
            count = fill(wire, "filler")
            assert count > 20
            offset = 0
            while offset < count:
                for record in records_of(wire.fetch("filler", offset)):
                    assert record.value is not None
                    assert bytes(record.value[:8]) == b"%08d" % offset
                    offset += 1
            if reserve_bytes:  # without one, nothing can be promised to the metadata log
                deleted = wire.call(DeleteTopicsRequest(topic_names=["filler"], timeout_ms=10_000), 3)
                assert deleted.responses[0].error_code == ErrorCode.NONE
                # A deleted file keeps its bytes for 30 s, for answers that are still being sent from it.
                eventually(lambda: not list(cluster[1].data.glob("filler-*")), "space to be given back", 60)
                assert wire.create("later", replicas=1).error_code == 0
                cluster.leader_of("later")
                eventually(lambda: wire.produce("later", batch()).error_code == 0, "service to resume")
            assert cluster[1].is_running
    finally:
        cluster.close()


def test_no_node_ends_on_a_disk_without_a_free_byte_and_service_is_back_when_there_is_room(
    small_disk: Path,
) -> None:
    """The nodes' own logs have no room either, and a node that was killed starts. How soon service is back is told, in
    virtual time, in tests/simulation/test_full_disks.py."""
    partitions = 10
    cluster = BrokerCluster(small_disk / "cluster", log__min__free__bytes="0")

    def produce(wire: Wire, partition: int) -> int:
        answer = wire.produce("foo", batch(1, b"x" * 5000), partition=partition, timeout_ms=200)
        return answer.error_code

    def is_served(partition: int) -> bool:
        with cluster.wire_to_leader("foo", partition) as wire:
            return produce(wire, partition) == 0

    try:
        cluster.start()
        with cluster.wire() as wire:
            assert wire.create("foo", partitions).error_code == 0
        other = use_up(small_disk)
        for node_id in 4 * tuple(cluster.brokers):
            with cluster.wire(node_id) as wire:
                answers = [produce(wire, partition) for partition in range(partitions)]
        assert 0 not in answers
        assert len(cluster.running) == 3
        cluster.kill(2)
        cluster.spawn(cluster[2])
        eventually(lambda: cluster.seen_by(cluster[2]), "the killed node to serve, with a full disk")
        other.unlink()
        for partition in range(partitions):
            eventually(partial(is_served, partition), f"partition {partition} to take records")
        assert len(cluster.running) == 3
    finally:
        cluster.close()
