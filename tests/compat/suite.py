"""What every suite shares: the cluster under test, running a program with a time limit, and reading its answers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.compat.report import HERE, Case, Outcome, short

ROOT = HERE.parent.parent
#: Tests that we leave out, with the reason, by suite: exclusions.toml.
EXCLUSIONS = tomllib.loads((HERE / "exclusions.toml").read_text(encoding="utf-8"))
KILL_GRACE_S = 5


class Missing(Exception):
    """The suite cannot run on this machine; the message says in plain words what is missing and what helps."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster under test, and where logs go. `only`: run the cases whose name contains one of these."""

    bootstrap: str
    broker: str
    logs: Path
    commit: str
    only: tuple[str, ...] = ()
    #: Whether a client's question makes a topic (auto.create.topics.enable, Kafka's default).
    creates_topics: bool = True

    def wants(self, name: str) -> bool:
        return not self.only or any(part in name for part in self.only)

    def case(self, name: str, outcome: Outcome, note: str = "", seconds: float = 0.0) -> Case:
        return Case(name, outcome, short(note), round(seconds, 1), self.commit)


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended or was ended: exit code None means that its time was up."""

    code: int | None
    output: str
    seconds: float


def need(program: str, helps: str) -> str:
    """The path of a program, or Missing."""
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is not installed; this helps: {helps}")
    return found


def run(
    command: Sequence[str | Path],
    log: Path,
    timeout_s: float,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Ran:
    """Run to the end or to the time limit. What it says, on both streams, goes to `log`; its children end with it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            process.communicate(stdin.encode(), timeout=timeout_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    text = log.read_text(encoding="utf-8", errors="replace")
    return Ran(code, text, time.monotonic() - started)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Our child leads a session of its own, so its group is it and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_GRACE_S)
            return


def last_lines(text: str, count: int = 3) -> str:
    return " / ".join([line for line in text.splitlines() if line.strip()][-count:])


def excluded(target: Target, suite: str, names: Iterable[str]) -> dict[str, Case]:
    """The cases of these names that exclusions.toml leaves out, for every broker or for this one."""
    tables: Mapping[str, Mapping[str, str]] = EXCLUSIONS.get(suite, {})
    reasons = {**tables.get("everywhere", {}), **tables.get(target.broker, {})}
    return {
        name: target.case(name, Outcome.EXCLUDED, reason)
        for name in names
        for pattern, reason in reasons.items()
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
    }


def read_json_lines(target: Target, ran: Ran) -> dict[str, Case]:
    """What our scenario programs print: {"scenarios": [names]}, then {"case", "outcome", "note", "seconds"} each."""
    lines = [line for line in ran.output.splitlines() if line.startswith(('{"scenarios"', '{"case"'))]
    if not lines:
        return {"start": target.case("start", Outcome.FAILED, last_lines(ran.output))}
    names = json.loads(lines[0])["scenarios"]
    said = {answer["case"]: answer for answer in map(json.loads, lines[1:])}
    cases = {}
    for name in names:
        if name in said:
            answer = said[name]
            cases[name] = target.case(name, Outcome(answer["outcome"]), answer["note"], answer["seconds"])
        else:
            how = "its time was up" if ran.code is None else f"the program ended with {ran.code}"
            cases[name] = target.case(name, Outcome.FAILED, f"no answer, {how}: {last_lines(ran.output)}")
    return cases


def read_junit(target: Target, file: Path, ran: Ran) -> dict[str, Case]:
    """What pytest says in its junit file. Without one, pytest itself failed."""
    if not file.exists():
        return {"pytest": target.case("pytest", Outcome.FAILED, last_lines(ran.output))}
    cases = {}
    for element in ElementTree.parse(file).iter("testcase"):
        name = f"{element.get('classname', '').rpartition('.')[2]}::{element.get('name')}"
        outcome, note = Outcome.PASSED, ""
        for child in element:
            if child.tag in ("failure", "error"):
                outcome, note = Outcome.FAILED, child.get("message") or child.text or child.tag
            elif child.tag == "skipped":
                outcome, note = Outcome.SKIPPED, child.get("message") or ""
        cases[name] = target.case(name, outcome, note, float(element.get("time") or 0))
    return cases
