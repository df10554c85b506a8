"""Our scenarios for clients that Python drives (scenarios/*.py): confluent-kafka, aiokafka, kcat, Kafka's tools.

They are pytest files that `scripts/test` does not collect: the cluster under test comes from the environment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.compat import java_suites
from tests.compat.report import HERE, SuiteResult
from tests.compat.suite import ROOT, Missing, Target, last_lines, need, read_junit, run

TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class PytestSuite:
    name: str
    file: str
    #: What the table calls the client; raises Missing where it is not there.
    client: Callable[[str | None], str]


def _kcat(_: str | None) -> str:
    kcat = need("kcat", "sudo apt-get install -y kcat")
    said = subprocess.run([kcat, "-V"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in said.splitlines() if line.startswith("Version"))
    return "kcat " + line.split()[1] + ", librdkafka " + line.split("librdkafka ")[1].split()[0]


def _confluent(_: str | None) -> str:
    import confluent_kafka

    return f"confluent-kafka {version('confluent-kafka')}, librdkafka {confluent_kafka.libversion()[0]}"


def _aiokafka(_: str | None) -> str:
    return f"aiokafka {version('aiokafka')}"


def _java_tools(class_path: str | None) -> str:
    return f"Kafka's tools {java_suites.version(java_suites.class_path(class_path))}"


SUITES = (
    PytestSuite("confluent-kafka", "confluent_scenarios.py", _confluent),
    PytestSuite("aiokafka", "aiokafka_scenarios.py", _aiokafka),
    PytestSuite("kcat", "kcat_scenarios.py", _kcat),
    PytestSuite("java tools", "java_tools_scenarios.py", _java_tools),
)


def run_suite(suite: PytestSuite, target: Target, class_path: str | None, date: str) -> SuiteResult:
    environment = {"COMPAT_BOOTSTRAP": target.bootstrap}
    try:
        client = suite.client(class_path)
        if suite.name == "java tools":
            environment["COMPAT_CLASS_PATH"] = java_suites.class_path(class_path)
    except Missing as missing:
        return SuiteResult(suite.name, suite.name, date, str(missing))
    slug = suite.name.replace(" ", "-")
    junit = target.logs / f"{slug}.xml"
    junit.unlink(missing_ok=True)
    only = ["-k", " or ".join(target.only)] if target.only else []
    file = HERE / "scenarios" / suite.file
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *only, file]
    ran = run(command, target.logs / f"{slug}.log", TIMEOUT_S, cwd=ROOT, environment=environment)
    print(f"  {last_lines(ran.output, 1)}", file=sys.stderr)
    return SuiteResult(suite.name, client, date, "", read_junit(target, junit, ran))
