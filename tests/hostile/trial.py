"""The whole trial: a client that behaves works all the time, and one attack after the other is tried beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.hostile import good
from tests.hostile.idle import WHEN_IDLE
from tests.hostile.observer import Latency, Observed, Observer
from tests.hostile.target import Target
from tests.integration.harness import ROOT, eventually

GOOD_TOPIC = "hostile-good"
AT_REST = "at rest"
FUZZ = "fuzz"
MAX_MEMORY_MB = 256
#: A good client's p99 may be so many times its value at rest. Below the floor a ratio says nothing.
MAX_SLOWDOWN = 2.0
FLOOR_MS = 10.0
#: After an attack: until what it left behind has shown.
_AFTER_S = 2.0


@dataclass(slots=True)
class Row:
    """What one attack came to."""

    name: str
    took_s: float
    counts: dict[str, int]
    observed: Observed
    latency: Latency
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    rows: list[Row]
    acknowledged: int
    missing: int

    @property
    def passed(self) -> bool:
        return not self.missing and not any(row.problems for row in self.rows)


class Trial:
    def __init__(
        self,
        target: Target,
        folder: Path,
        say: Callable[[str], None],
        *,
        rest_s: float = 20.0,
        is_measured: bool = True,
    ) -> None:
        """`folder`: for what the client that behaves notes. `say` is told of each row. For `rest_s`, nothing else is
        done at first. `is_measured`: attackers leave the processors to the nodes, and the good client's latency is
        judged."""
        self._target = target
        self._nodes = target.local_nodes()
        self._noted = folder / "good.jsonl"
        self._say = say
        self._rest_s = rest_s
        self._is_measured = is_measured
        self._rest_p99_ms = FLOOR_MS

    def run(self, attacks: list[str], requests: int, seed: int) -> Outcome:
        """`requests`: how many the fuzzer has processed; 0: it is left out."""
        self._target.create(GOOD_TOPIC, 3)
        rows: list[Row] = []
        with self._good_client():
            rows.append(self._row(AT_REST, self._rest))
            self._rest_p99_ms = rows[0].latency.p99_ms
            rows += [self._row(name, partial(self._run, "tests.hostile.attacks", name)) for name in attacks]
            if requests:
                rows.append(
                    self._row(FUZZ, partial(self._run, "tests.hostile.fuzz", str(requests), str(seed)))
                )
        noted = good.deliveries(self._noted)
        missing = good.missing(self._target.bootstrap, GOOD_TOPIC, noted)
        return Outcome(rows, sum(each.error is None for each in noted), len(missing))

    @contextmanager
    def _good_client(self) -> Iterator[None]:
        command = [
            sys.executable,
            "-m",
            "tests.hostile.good",
            self._target.bootstrap,
            GOOD_TOPIC,
            str(self._noted),
        ]
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            eventually(lambda: self._noted.exists() and good.deliveries(self._noted), "the first record")
            yield
        finally:
            process.terminate()
            process.wait()

    def _row(self, name: str, act: Callable[[], tuple[dict[str, int], list[str]]]) -> Row:
        self._say(name)
        began = time.monotonic()
        with Observer(self._target, self._nodes, GOOD_TOPIC) as observed:
            counts, defects = act()
            took_s = time.monotonic() - began
            time.sleep(_AFTER_S)
        latency = Latency.of(good.deliveries(self._noted), observed.since, time.time() - _AFTER_S)
        row = Row(name, took_s, counts, observed, latency, defects)
        row.problems += self._judge(row)
        return row

    def _rest(self) -> tuple[dict[str, int], list[str]]:
        time.sleep(self._rest_s)
        return {}, []

    def _run(self, *command: str) -> tuple[dict[str, int], list[str]]:
        """Run an attacker in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", *command, *([WHEN_IDLE] if self._is_measured else [])],
            cwd=ROOT,
            input=json.dumps(self._target.as_dict()),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
            return {}, [f"the attack itself failed: {last[0]}"]
        seen = json.loads(done.stdout)
        return seen["counts"], seen["defects"]

    def _judge(self, row: Row) -> Iterator[str]:
        observed, latency = row.observed, row.latency
        yield from observed.trouble
        for node_id, most_mb in observed.memory_mb.items():
            if most_mb > MAX_MEMORY_MB:
                yield f"node {node_id} used {most_mb} MB"
        if observed.has_leader_changes:
            yield "a leader or the controller changed"
        if latency.failed:
            yield f"{latency.failed} records of the good client failed"
        limit_ms = max(FLOOR_MS, MAX_SLOWDOWN * self._rest_p99_ms)
        if self._is_measured and row.name != AT_REST and latency.p99_ms > limit_ms:
            yield f"the good client's p99 is {latency.p99_ms:.0f} ms, more than {limit_ms:.0f} ms"
