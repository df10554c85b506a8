"""A node whose own log cannot be written serves all the same: often the log is on the volume that is full."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log_lines import LineWriter
from tests.integration.harness import BrokerCluster
from tests.integration.test_wire import batch
from tests.integration.wire import Wire

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    cluster = BrokerCluster(tmp_path / "cluster", 1)
    log = cluster[1].directory / "log"
    log.symlink_to(FULL)
    try:
        cluster.start()
        yield cluster
    finally:
        log.unlink()  # whoever reads it never comes to an end
        cluster.close()


def test_a_node_serves_and_stops_without_a_log(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        assert wire.create("foo", replicas=1).error_code == 0
        cluster.leader_of("foo")
        with Wire(cluster[1].port) as hostile:
            hostile.socket.sendall(struct.pack(">i", -1))  # refused with a line
            assert hostile.is_closed_by_broker()
        assert wire.produce("foo", batch()).error_code == 0
    cluster.terminate(1)
    assert cluster[1].process is not None
    assert cluster[1].process.returncode == 0


def test_the_next_line_that_is_written_counts_the_lost_ones(tmp_path: Path) -> None:
    full = os.open(FULL, os.O_WRONLY)
    target = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    output = os.dup(full)
    try:
        writer = LineWriter(output)
        writer.info("one")
        writer.error("two")
        os.dup2(target, output)
        writer.info("three")
        writer.info("four")
    finally:
        for fd in (full, target, output):
            os.close(fd)
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert lines == ["(2 lines before this one could not be written)", "three", "four"]
