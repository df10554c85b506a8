"""kafka-python's integration tests, from a checkout that the user names, in a virtual environment of their own.

Its fixtures take a running broker from KAFKA_URI; the tests that start a broker of their own (TLS, SASL) are left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.compat.report import Case, SuiteResult
from tests.compat.suite import ROOT, Missing, Target, excluded, last_lines, read_junit, run

SUITE = "kafka-python"
BROKER_VERSION = "4.3.0"
TIMEOUT_S = 1200
#: What the tests import beside kafka-python itself, codecs included.
PACKAGES = "pytest pytest-mock pytest-timeout py crc32c lz4 python-snappy zstandard xxhash".split()
VENV = ROOT / "build" / "compat" / "kafka-python-venv"


def run_suite(target: Target, checkout: Path | None, date: str) -> SuiteResult:
    if checkout is None:
        return SuiteResult(SUITE, SUITE, date, "no checkout named; this helps: --kafka-python DIR")
    try:
        python = _environment(checkout)
    except Missing as missing:
        return SuiteResult(SUITE, SUITE, date, str(missing))
    environment = {
        "KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_URI": "kafka://" + target.bootstrap.split(",")[0],
        # Its fixtures insist on the folder of a Kafka, which a broker that runs already does not need.
        "KAFKA_ROOT": str(target.logs),
    }
    folder = "test/integration"
    listed = run(
        [python, "-m", "pytest", "-q", "--collect-only", folder],
        target.logs / "kafka-python-collect.log",
        120,
        cwd=checkout,
        environment=environment,
    )
    ids = [line for line in listed.output.splitlines() if line.startswith(folder) and "::" in line]
    if not ids:
        raise AssertionError(f"pytest found no tests in {checkout}: {last_lines(listed.output)}")
    names = {_name(node): node for node in ids if target.wants(node)}
    cases = excluded(target, SUITE, names)
    cases |= _run_tests(
        target, python, checkout, [names[name] for name in names if name not in cases], environment
    )
    return SuiteResult(SUITE, f"kafka-python {_version(python)}", date, "", cases)


def _name(node: str) -> str:
    """The name under which pytest's junit file tells of this test."""
    path, _, rest = node.partition("::")
    *classes, function = rest.split("::")
    return "::".join([*(classes or [Path(path).stem]), function])


def _run_tests(
    target: Target, python: Path, checkout: Path, nodes: list[str], environment: dict[str, str]
) -> dict[str, Case]:
    junit = target.logs / "kafka-python.xml"
    junit.unlink(missing_ok=True)
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "--timeout=120",
        "--timeout-method=signal",
        f"--junitxml={junit}",
        *nodes,
    ]
    ran = run(command, target.logs / "kafka-python.log", TIMEOUT_S, cwd=checkout, environment=environment)
    print(f"  {last_lines(ran.output, 1)}", file=sys.stderr)
    return read_junit(target, junit, ran)


def _environment(checkout: Path) -> Path:
    """The interpreter of a virtual environment that holds the checkout and what its tests need."""
    if not (checkout / "test" / "integration").is_dir():
        raise Missing(f"{checkout} is not a checkout of kafka-python")
    python = VENV / "bin" / "python"
    installed = VENV / "installed-from"
    wanted = f"{checkout.resolve()} {_commit(checkout)}"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        log = VENV.with_suffix(".log")
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        commands: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", VENV],
            [*pip, checkout, *PACKAGES],
        ]
        for command in commands:
            ran = run(command, log, 900)
            if ran.code != 0:
                raise Missing(
                    f"no environment for kafka-python's tests, see {log}: {last_lines(ran.output, 1)}"
                )
        installed.write_text(wanted, encoding="utf-8")
    return python


def _commit(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _version(python: Path) -> str:
    return subprocess.check_output(
        [python, "-c", "import kafka; print(kafka.__version__)"], text=True, cwd="/"
    ).strip()
