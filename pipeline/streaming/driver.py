"""The process in which the queries run, as its starter has it: told of each batch, killed, started again, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.spark.session import SparkOptions
from pipeline.streaming.query import COUNT, TRANSFORM, QueryOptions

_ROOT = Path(__file__).resolve().parents[2]
_TASKS = 2
_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 60.0
_MID_BATCH_TIMEOUT_S = 60.0
_POLL_S = 0.002
_TOLD_LINES = 12

Offsets = dict[str, int]
"""End offset (exclusive) per partition, by its number as text, as Spark writes it."""


class Batch(TypedDict):
    """What a query says of a batch that has ended."""

    query: str
    batch: int
    records: int
    duration_ms: int
    end_offsets: dict[str, Offsets]


@dataclass(frozen=True, slots=True)
class Repeated:
    """What a query had begun to write when its driver was killed: the next driver runs the same batch again."""

    batch: int
    starts: Offsets
    ends: Offsets


class QueryProcess:
    """`with QueryProcess(...) as process:` runs the queries until the end of the block.

    Its methods may be called by any thread. All raise PipelineError with the queries' own reason once they have failed.
    """

    def __init__(
        self,
        options: QueryOptions,
        topic: str,
        log: Path,
        records: int,
        where: SparkOptions,
        told: Callable[[Batch], None],
    ) -> None:
        """`log`: what the JVM prints, and Python's standard error. `told`: called by a thread, for each batch."""
        self._options = options
        self._log = log
        self._told = told
        self._command_options = {
            "bootstrap_server": options.bootstrap_server,
            "topic": topic,
            "checkpoints": str(options.checkpoints),
            "sink": options.sink,
            "trigger_ms": options.trigger_ms,
            "log": str(log),
            "tasks": _TASKS,
            "records": records,
            "master": where.master,
            "conf": dict(where.conf),
        }
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._is_started = False
        self._is_expected_to_end = False
        self._ends: dict[str, Offsets] = {}

    def __enter__(self) -> QueryProcess:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Stopped in order where all went well; otherwise whatever still runs is killed."""
        if kind is None:
            self.stop()
        else:
            self._kill()

    def start(self) -> None:
        """Start the process, and wait until its queries run."""
        command = [sys.executable, "-m", "pipeline.streaming", json.dumps(self._command_options)]
        with self._log.open("ab") as errors:
            # A session of its own: Ctrl-C is its starter's to handle, and a kill takes Python and the JVM together.
            process = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        with self._changed:
            self._process, self._is_started, self._is_expected_to_end = process, False, False
        threading.Thread(target=self._listen, args=(process,), name="query-lines", daemon=True).start()
        self._wait(lambda: self._is_started, _START_TIMEOUT_S, "the queries have not started")

    def stop(self) -> None:
        """Ask the queries to end, and wait until they have."""
        process = self._expect_end()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended by itself
            process.stdin.close()
        try:
            code = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            raise PipelineError(
                f"the queries did not stop within {_STOP_TIMEOUT_S:.0f} s, and were killed"
            ) from None
        if code != 0:
            raise PipelineError(self._reason(code))

    def kill_mid_batch(self) -> Repeated | None:
        """kill -9 while the transforming query has a batch begun, written in part or in whole, and not ended; what it
        will have to run again.

        None where the batch ended between the look and the kill. Where none is caught writing within a minute, the
        driver is killed all the same.
        """
        deadline = time.monotonic() + _MID_BATCH_TIMEOUT_S
        checkpoint = self._options.checkpoints / TRANSFORM
        sink = Cluster(self._options.bootstrap_server)
        seen, written_before = -1, 0
        while time.monotonic() < deadline:
            self._raise_failure()
            batch = unfinished_batch(checkpoint)
            if batch is None:
                time.sleep(_POLL_S)
                continue
            written = sum(end for _, end in sink.offsets(self._options.topics.sink).values())
            if batch.batch != seen:
                seen, written_before = batch.batch, written
            elif written > written_before:
                break
        self._kill()
        return unfinished_batch(checkpoint)

    def wait_caught_up(self, ends: Offsets, timeout_s: float) -> None:
        """Until both queries have ended a batch that reaches these offsets of the source."""

        def are_caught_up() -> bool:
            return all(
                all(self._ends.get(query, {}).get(partition, 0) >= end for partition, end in ends.items())
                for query in (TRANSFORM, COUNT)
            )

        self._wait(are_caught_up, timeout_s, "the queries have not caught up with what was fed")

    def check(self) -> None:
        """Raises PipelineError where the queries have failed."""
        self._raise_failure()

    def _wait(self, is_reached: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not is_reached():
                self._raise_failure()
                if not self._changed.wait(min(1.0, max(0.0, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    raise PipelineError(f"{otherwise} within {timeout_s:.0f} s; see {self._log}")

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message: Any = json.loads(line)
            with self._changed:
                if "started" in message:
                    self._is_started = True
                else:
                    batch: Batch = message
                    # The queries read one topic.
                    (self._ends[batch["query"]],) = batch["end_offsets"].values()
                    self._told(batch)
                self._changed.notify_all()
        process.wait()
        with self._changed:
            self._changed.notify_all()

    def _expect_end(self) -> subprocess.Popen[str]:
        with self._changed:
            assert self._process is not None, "it was started"
            self._is_expected_to_end = True
            return self._process

    def _kill(self) -> None:
        """kill -9 of Python and its JVM together, as when the driver's machine is lost."""
        process = self._expect_end()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _raise_failure(self) -> None:
        with self._changed:
            if self._process is None or self._is_expected_to_end:
                return
            code = self._process.poll()
        if code is not None:
            raise PipelineError(self._reason(code))

    def _reason(self, code: int) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        told = [line for line in lines if not line.startswith(("\tat ", "  File "))][-_TOLD_LINES:]
        return "\n    ".join([f"the queries ended with exit code {code} (details: {self._log}):", *told])


def unfinished_batch(checkpoint: Path) -> Repeated | None:
    """The batch that the checkpoint says was begun and not ended; None where there is none."""
    begun = _numbers(checkpoint / "offsets")
    ended = _numbers(checkpoint / "commits")
    if not begun or begun[-1] in ended:
        return None
    number = begun[-1]
    starts = _logged_offsets(checkpoint, number - 1) if number - 1 in begun else {}
    return Repeated(number, starts, _logged_offsets(checkpoint, number))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


def _logged_offsets(checkpoint: Path, batch: int) -> Offsets:
    """Spark's offset log: a version, a line about the batch, and one of JSON for each source."""
    (by_topic,) = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]).items()
    offsets: Offsets = by_topic[1]
    return offsets
