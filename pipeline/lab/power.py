"""A disk that loses its power: a file system that is shut down without what it has not flushed.

The kernel's own test interface does it (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN, without flushing the log): from then on
nothing reaches the device, and what the next mount finds is what had been made durable, as after a power failure.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import PipelineError

# _IOR('X', 125, __u32): one number for both file systems.
_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = struct.pack("I", 2)
_SIZE_BYTES = 2 * 1024**3
_UNMOUNT_TIMEOUT_S = 30.0
_POLL_S = 0.1
_FILE_SYSTEMS = ("ext4", "xfs")


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted file system. Its methods raise PipelineError where the system does not let them."""

    device: str
    path: Path

    @classmethod
    def mounted_at(cls, path: Path) -> Disk:
        """Raises PipelineError unless an ext4 or xfs file system is mounted there, on a device that stays."""
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            device, mounted_at, kind = line.split()[:3]
            if mounted_at == str(path.resolve()):
                if kind not in _FILE_SYSTEMS:
                    raise PipelineError(
                        f"{path} is {kind}, which cannot be shut down: only {', '.join(_FILE_SYSTEMS)}"
                    )
                if _lets_go(device):
                    raise PipelineError(
                        f"{path} was mounted with -o loop, so {device} is gone when it is unmounted: mount what"
                        " `losetup --find --show FILE` prints"
                    )
                return cls(device, path)
        raise PipelineError(
            f"{path} is not where a file system is mounted: the power of a disk is cut by mount point"
        )

    def flush(self) -> None:
        """What was written so far survives."""
        _call("sync", "-f", str(self.path))

    def cut_power(self) -> None:
        """From now on nothing reaches the device. What is open gives errors."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG_FLUSH)
        except OSError as error:
            raise PipelineError(
                f"{self.path} cannot be shut down: {error.strerror} (root is needed)"
            ) from error
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount again what the device has. Nobody may have files open there."""
        self.unmount()
        _call("mount", self.device, str(self.path))

    def unmount(self) -> None:
        deadline_s = time.monotonic() + _UNMOUNT_TIMEOUT_S
        while True:
            try:
                _call("umount", str(self.path))
                return
            except PipelineError:
                # A process that was killed has its files open until it is gone.
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_S)


@contextmanager
def new_disk(folder: Path) -> Iterator[Disk]:
    """A disk of its own in a file of this folder, for the block alone. Raises PipelineError where that takes rights, or
    programs, that are not there."""
    if os.geteuid() != 0:
        raise PipelineError("needs root, to mount a file system of its own")
    image, path = folder / "disk.img", folder / "disk"
    if path.is_mount():
        raise PipelineError(f"{path} is still mounted, by a run that was cut off: umount {path}")
    path.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(_SIZE_BYTES)
    try:
        _call("mkfs.ext4", "-q", "-F", str(image))
        device = _call("losetup", "--find", "--show", str(image)).strip()
        try:
            _call("mount", device, str(path))
            disk = Disk(device, path)
            try:
                yield disk
            finally:
                disk.unmount()
        finally:
            _call("losetup", "--detach", device)
    finally:
        image.unlink()
        path.rmdir()
        folder.rmdir()


def _lets_go(device: str) -> bool:
    """Whether it is a loop device that loses its file with its last mount."""
    told = Path("/sys/block", Path(device).name, "loop/autoclear")
    return told.exists() and told.read_text().strip() == "1"


def _call(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    except OSError as error:
        raise PipelineError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise PipelineError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
