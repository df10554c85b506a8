"""A full disk: produce is refused, nothing acknowledged is lost, deleting a topic brings service back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
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
