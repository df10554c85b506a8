"""The ladder of acknowledgements on a cluster of its own, and the disk whose power it cuts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.lab import acks
from pipeline.lab.bench import Bench, own_bench
from pipeline.lab.power import Disk, new_disk
from tests.pipeline.producer.conftest import Node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")


@needs_root
def test_a_disk_without_power_loses_what_was_not_flushed_and_nothing_else(tmp_path: Path) -> None:
    try:
        with new_disk(tmp_path / "power") as disk:
            flushed, unflushed = disk.path / "flushed", disk.path / "unflushed"
            with flushed.open("wb") as file:
                file.write(b"a" * 100_000)
                file.flush()
                os.fsync(file.fileno())
            disk.flush()
            unflushed.write_bytes(b"b" * 100_000)
            disk.cut_power()
            with pytest.raises(OSError, match="Input/output error"):
                (disk.path / "later").write_bytes(b"c")
            disk.restore_power()
            assert flushed.read_bytes() == b"a" * 100_000
            assert not unflushed.exists() or unflushed.read_bytes() != b"b" * 100_000
            assert Disk.mounted_at(disk.path) == disk
    except PipelineError as error:
        if "losetup" in str(error) or "mount" in str(error):
            pytest.skip(f"no disk of one's own here: {error}")
        raise
    assert not (tmp_path / "power").exists()


@needs_root
def test_a_device_that_goes_with_its_mount_is_no_disk(tmp_path: Path) -> None:
    """It could not be mounted again when its power is back."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    for command in (("mkfs.ext4", "-q", "-F", image), ("mount", "-o", "loop", image, tmp_path)):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("no disk of one's own here")
    try:
        with pytest.raises(PipelineError, match="losetup --find --show FILE"):
            Disk.mounted_at(tmp_path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_is_no_mount_point_is_no_disk(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="not where a file system is mounted"):
        Disk.mounted_at(tmp_path)


def test_faults_that_cannot_be_tried_are_said_to_be_so(node: Node, tmp_path: Path) -> None:
    findings = acks.run(Bench(node.bootstrap, tmp_path, print, is_quick=True))
    faults = [(row[0], row[1], row[3]) for row in findings.tables[1].rows]
    assert faults == [
        (rung, f"{fault}: not tried, {reason}", None)
        for fault, reason in (
            ("leader killed (-9)", "needs --node-command"),
            ("power of all nodes cut", "needs --node-command and --data-mount"),
        )
        for rung in ("0", "1", "all")
    ]
    assert "was not tried: needs --node-command." in findings.text
    assert [plot.title for plot in findings.plots] == ["Throughput by acks"]


@pytest.mark.slow
def test_nothing_is_lost_that_all_replicas_in_sync_acknowledged(tmp_path: Path) -> None:
    with own_bench(tmp_path / "nodes", tmp_path, print, is_quick=True) as bench:
        findings = acks.run(bench)
    losses = {(row[0], str(row[1])): row for row in findings.tables[1].rows}
    _, _, acknowledged, lost, _ = losses["all", "leader killed (-9)"]
    assert isinstance(acknowledged, int) and acknowledged > 1_000
    assert lost == 0
    if ("all", "power of all nodes cut") in losses:
        assert losses["all", "power of all nodes cut"][3] == 0
    else:
        assert os.geteuid() != 0 or any("not tried" in fault for _, fault in losses)
