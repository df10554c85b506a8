"""Builds the C load driver and runs its jobs, each in a process of its own.

Without a C compiler or librdkafka's headers the same jobs run in `python_driver`, on confluent-kafka; its
client costs several times more CPU, so figures of the two do not compare, and each report names its driver.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE_DIRECTORY = Path(__file__).resolve().parent / "native_driver"
BUILD_DIRECTORY = SOURCE_DIRECTORY.parents[1] / "build" / "bench"
Option = str | int | float


class DriverError(Exception):
    """A job could not do its work; the message is what the driver wrote to stderr."""


@dataclass(frozen=True)
class Driver:
    """How to start the driver, and what it is ("C, librdkafka 2.0.2")."""

    command: tuple[str, ...]
    description: str
    environment: Mapping[str, str]

    def run(
        self,
        job: str,
        options: Mapping[str, Option],
        on_begin: Callable[[int], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Run one job to its end and return its result.

        `on_begin` and `on_end` get the driver's process id when the measured window opens and closes.
        Raises DriverError where the job fails.
        """
        with self.start(job, options) as process:
            return self.collect(process, on_begin, on_end)

    def start(self, job: str, options: Mapping[str, Option]) -> subprocess.Popen[str]:
        arguments = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        return subprocess.Popen(
            [*self.command, job, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )

    def collect(
        self,
        process: subprocess.Popen[str],
        on_begin: Callable[[int], None] | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        assert process.stdout is not None and process.stderr is not None
        result: dict[str, Any] | None = None
        try:
            for line in process.stdout:
                message = json.loads(line)
                if message["event"] == "begin" and on_begin:
                    on_begin(process.pid)
                elif message["event"] == "end" and on_end:
                    on_end(process.pid)
                elif message["event"] == "result":
                    result = message
        except BaseException:
            process.kill()
            raise
        complaint = process.stderr.read().strip()
        if process.wait() != 0 or result is None:
            raise DriverError(complaint or f"the driver ended with status {process.returncode}")
        return result


def find_driver(prefer_python: bool = False) -> Driver:
    """The C driver, built if its sources changed; else the Python one."""
    reason = "asked for" if prefer_python else _build()
    if isinstance(reason, Path):
        version = subprocess.run(
            [str(reason), "version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        return Driver((str(reason),), f"C, librdkafka {version}", {})
    return _python("benchmarks.python_driver", f"Python, confluent-kafka ({reason})")


def scale_driver() -> Driver:
    """For the job with many partitions, whatever the other jobs are done with."""
    return _python("benchmarks.scale_job", "Python, confluent-kafka")


def group_driver() -> Driver:
    """For jobs with groups, whatever the other jobs are done with."""
    return _python("benchmarks.group_job", "Python, confluent-kafka")


def _python(module: str, description: str) -> Driver:
    python_path = str(SOURCE_DIRECTORY.parents[1])
    return Driver((sys.executable, "-m", module), description, {"PYTHONPATH": python_path})


def _build() -> Path | str:
    """The built driver, or in words why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "no C compiler"
    sources = sorted(SOURCE_DIRECTORY.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    binary = BUILD_DIRECTORY / f"driver-{digest}"
    if binary.exists():
        return binary
    BUILD_DIRECTORY.mkdir(parents=True, exist_ok=True)
    probe = subprocess.run(
        [compiler, "-E", "-x", "c", "-"],
        input="#include <librdkafka/rdkafka.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        return "no librdkafka headers; Debian's are in librdkafka-dev"
    unfinished = binary.with_suffix(f".{os.getpid()}")
    built = subprocess.run(
        [compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-o", str(unfinished)]
        + [str(source) for source in sources if source.suffix == ".c"]
        + ["-lrdkafka", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise DriverError(f"the C driver does not build:\n{built.stderr}")
    unfinished.rename(binary)
    return binary
