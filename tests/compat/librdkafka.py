"""librdkafka's own regression tests, built from a checkout that the user names, one number per process.

Its local tests need no broker and are not counted. With `group.protocol=consumer` (KIP-848) the suite runs a second
time, as its authors do.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tests.compat import java_suites
from tests.compat.report import Case, Outcome, SuiteResult
from tests.compat.suite import Missing, Target, excluded, last_lines, need, run

DEFAULT_SCENARIO = "default"
NO_AUTO_CREATE = "noautocreate"
#: The suite asks for features by broker version.
BROKER_VERSION = "4.3.0"
TEST_TIMEOUT_S = 900
#: The suite's own time limits are for an idle machine with a broker to itself.
TIMEOUT_MULTIPLIER = 2
SKIPPED = re.compile(r"^\|\s*(\w+)\s*\|\s*SKIPPED\s*\|[^|]*\|(.*)$", re.MULTILINE)
FAILURE = re.compile(r'^### Test "(\w+)[^"]*" failed at (\S+?)(?:\(\))? at .*: ###\n(.*)$', re.MULTILINE)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run_suite(
    target: Target,
    checkout: Path | None,
    group_protocol: str,
    kafka_class_path: str | None,
    keep: Callable[[SuiteResult], None],
    date: str,
) -> SuiteResult:
    """All tests that need a broker; `group_protocol` is classic or consumer. Each one's outcome is kept as it comes."""
    suite = "librdkafka" if group_protocol == "classic" else f"librdkafka, group.protocol={group_protocol}"
    if checkout is None:
        return SuiteResult(suite, "librdkafka", date, "no checkout named; this helps: --librdkafka DIR")
    try:
        tests = build(checkout)
        scripts = write_kafka_scripts(target.logs / "kafka-scripts", java_suites.class_path(kafka_class_path))
    except Missing as missing:
        return SuiteResult(suite, "librdkafka", date, str(missing))
    scenario = DEFAULT_SCENARIO if target.creates_topics else NO_AUTO_CREATE
    scenarios = tests_of((checkout / "tests" / "test.c").read_text(encoding="utf-8"))
    names = [name for name in scenarios if target.wants(name) and scenario in scenarios[name]]
    result = SuiteResult(suite, f"librdkafka {_version(checkout)}", date)
    result.cases = excluded(target, "librdkafka", names)
    for number, group in groupby((name for name in names if name not in result.cases), lambda name: name[:4]):
        found = _run_tests(target, tests, number, list(group), scenario, group_protocol, scripts)
        for case in found.values():
            print(f"  {case.outcome:8} {case.name} {case.seconds} s {case.note}", file=sys.stderr)
        result.cases |= found
        keep(replace(result, cases=found))
    return result


def tests_of(source: str) -> dict[str, tuple[str, ...]]:
    """Names of the tests that need a broker, in order, with the scenarios (broker settings) that they run in."""
    table = source[source.index("struct test tests[]") :]
    found = {}
    for entry in table[: table.index("{NULL}")].split("\n    _TEST(")[1:]:
        name = entry.split(",", 1)[0]
        if "TEST_F_LOCAL" in entry or "TEST_F_MANUAL" in entry:
            continue
        scenario = re.search(r'\.scenario\s*=\s*"([^"]+)"', entry)
        found[name] = tuple(scenario.group(1).split(",")) if scenario else (DEFAULT_SCENARIO,)
    return found


def build(checkout: Path) -> Path:
    """Configure and make the test runner where it is not made yet; returns the folder it is run in."""
    tests = checkout / "tests"
    if not (tests / "test.c").exists():
        raise Missing(f"{checkout} is not a checkout of librdkafka")
    if not (tests / "test-runner").exists():
        make = need("make", "sudo apt-get install -y build-essential zlib1g-dev libssl-dev")
        need("g++", "sudo apt-get install -y build-essential")
        log = checkout / "varve-compat-build.log"
        for command in (["./configure"], [make, "-j2", "libs"], [make, "-j2", "-C", "tests", "test-runner"]):
            ran = run(["nice", *command], log, 1800, cwd=checkout)
            if ran.code != 0:
                raise Missing(f"librdkafka could not be built, see {log}: {last_lines(ran.output, 1)}")
    return tests


def write_kafka_scripts(folder: Path, jars: str) -> Path:
    """What some tests expect of a Kafka's folder: two commands, and the jars to compile against. Returns the folder."""
    topics = shlex.join(java_suites.java(jars, "org.apache.kafka.tools.TopicCommand", []))
    # The suite's own Java programs: it gives their folder as CLASSPATH, and their class as the first argument.
    run_class = f'java {java_suites.HEAP} -cp "$CLASSPATH":{shlex.quote(jars)}'
    for name, command in {"kafka-topics.sh": topics, "kafka-run-class.sh": run_class}.items():
        script = folder / "bin" / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    libraries = folder / "libs"
    libraries.unlink(missing_ok=True)
    libraries.symlink_to(Path(jars.rstrip("*")).resolve())
    return folder


def _run_tests(
    target: Target,
    tests: Path,
    number: str,
    names: list[str],
    scenario: str,
    group_protocol: str,
    kafka_scripts: Path,
) -> dict[str, Case]:
    """Run the tests of one number: the runner can select no finer."""
    log = target.logs / f"librdkafka-{group_protocol}" / f"{number}-{scenario}.log"
    # By process: another run may use the same folder, and another cluster.
    config = log.with_suffix(f".{os.getpid()}.conf")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f"bootstrap.servers={target.bootstrap}\ntest.timeout.multiplier={TIMEOUT_MULTIPLIER}\n",
        encoding="utf-8",
    )
    libraries = [str((tests / "../src").resolve()), str((tests / "../src-cpp").resolve())]
    environment = {
        "TESTS": number,
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": group_protocol,
        "KAFKA_PATH": str(kafka_scripts),
        "BROKERS": target.bootstrap,
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
    }
    command: list[str | Path] = [tests / "test-runner", "-L", "-p1", "-s", scenario]
    ran = run(command, log, TEST_TIMEOUT_S, cwd=tests, environment=environment)
    config.unlink()
    output = ANSI.sub("", ran.output)
    return {name: target.case(name, *read_outcome(name, output, ran.code), ran.seconds) for name in names}


def read_outcome(name: str, output: str, code: int | None) -> tuple[Outcome, str]:
    """What one test came to, and why. The runner aborts after a failure, without its summary, or hangs."""
    if f" Test {name} PASSED " in output:
        return Outcome.PASSED, ""
    for test, where, what in FAILURE.findall(output):
        if test == name:
            return Outcome.FAILED, f"{where} {what}"
    for test, said in SKIPPED.findall(output):
        if test == name:
            return Outcome.SKIPPED, said.strip()
    how = f"no result in {TEST_TIMEOUT_S} s" if code is None else f"the runner ended with {code}"
    return Outcome.FAILED, f"{how}: {last_lines(output, 1)}"


def _version(checkout: Path) -> str:
    described = subprocess.run(
        ["git", "describe", "--tags", "--always"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "of an unknown version"
