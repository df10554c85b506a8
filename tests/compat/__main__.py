"""`scripts/compat`: run the suites against a cluster, keep what they found, and write RESULTS.md."""

from __future__ import annotations

import argparse
import datetime
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import varve
from tests.compat import cluster, java_suites, kafka_python, kafkajs, librdkafka, pytest_suites, report
from tests.compat.report import KAFKA, VARVE, SuiteResult
from tests.compat.suite import ROOT, Target

LOGS = ROOT / "build" / "compat"
STREAMS_SECONDS = 60
Suite = Callable[[Target], SuiteResult]


def suites(options: argparse.Namespace, date: str) -> dict[str, Suite]:
    """All suites by name, in the order in which they run: the quick ones first."""
    jars = options.kafka_classpath

    def of_librdkafka(target: Target, protocol: str) -> SuiteResult:
        keep = partial(report.keep, options.results, target.broker)
        return librdkafka.run_suite(target, options.librdkafka, protocol, jars, keep, date)

    of_pytest = {
        suite.name.replace(" ", "-"): lambda target, suite=suite: pytest_suites.run_suite(
            suite, target, jars, date
        )
        for suite in pytest_suites.SUITES
    }
    return {
        **of_pytest,
        "kafkajs": lambda target: kafkajs.run_suite(target, date),
        "java": lambda target: java_suites.run_clients(target, jars, date),
        "streams": lambda target: java_suites.run_streams(target, jars, options.streams_seconds, date),
        "kafka-python": lambda target: kafka_python.run_suite(target, options.kafka_python, date),
        "librdkafka": lambda target: of_librdkafka(target, "classic"),
        "librdkafka-consumer": lambda target: of_librdkafka(target, "consumer"),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/compat",
        description="Run clients and other projects' own tests against a cluster, and write tests/compat/RESULTS.md.",
        epilog="Exit code: 0 nothing failed that passes on Kafka; 1 something did; 2 it could not be done.",
    )
    names = [*suites(argparse.Namespace(kafka_classpath=None), "")]
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="a cluster that runs; default: three Varve nodes of this checkout, with a data folder of their own",
    )
    parser.add_argument(
        "--broker", default=VARVE, help=f"what that cluster is, for the table ({VARVE!r}, {KAFKA!r})"
    )
    parser.add_argument(
        "--no-auto-create",
        action="store_true",
        help="that cluster has auto.create.topics.enable=false: run those of librdkafka's tests that ask for this",
    )
    parser.add_argument(
        "--librdkafka", type=Path, metavar="DIR", help="a checkout of librdkafka; it is built there"
    )
    parser.add_argument("--kafka-python", type=Path, metavar="DIR", help="a checkout of kafka-python")
    parser.add_argument("--kafka-classpath", metavar="JARS", help="a Kafka's jars, as in /opt/kafka/libs/*")
    parser.add_argument(
        "--streams-seconds", type=int, default=STREAMS_SECONDS, help="how long the word count runs"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="cases whose name contains this"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=report.HERE,
        help="where to keep what is found; default: here",
    )
    options = parser.parse_args()
    unknown = set(options.suite) - set(names)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    return options


@contextmanager
def target_of(options: argparse.Namespace, settings: Mapping[str, str]) -> Iterator[Target]:
    creates_topics = settings is not cluster.NO_AUTO_CREATE
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    logs = LOGS / options.broker.split()[0].lower()
    if options.bootstrap_server:
        of_varve = commit if options.broker == VARVE else ""
        yield Target(
            options.bootstrap_server, options.broker, logs, of_varve, tuple(options.only), creates_topics
        )
        return
    with cluster.started(settings) as bootstrap:
        yield Target(bootstrap, VARVE, logs, commit, tuple(options.only), creates_topics)


def run_suites(wanted: dict[str, Suite], options: argparse.Namespace, settings: Mapping[str, str]) -> None:
    """Each result is kept as soon as it is there: a run takes long. `settings`: of a cluster that is started."""
    if not wanted:
        return
    with target_of(options, settings) as target:
        for name, suite in wanted.items():
            print(f"{name} against {target.broker} at {target.bootstrap}", file=sys.stderr)
            found = suite(target)
            print(f"{name}: {found.missing or _counts(found)}", file=sys.stderr)
            report.keep(options.results, target.broker, found)


def _counts(found: SuiteResult) -> str:
    return ", ".join(
        f"{found.count(outcome)} {outcome}" for outcome in report.Outcome if found.count(outcome)
    )


def main() -> int:
    options = arguments()
    every = suites(options, datetime.date.today().isoformat())
    wanted = {name: suite for name, suite in every.items() if not options.suite or name in options.suite}
    if not options.no_auto_create:
        of_streams = {name: suite for name, suite in wanted.items() if name == "streams"}
        run_suites({name: wanted[name] for name in wanted if name not in of_streams}, options, {})
        run_suites(of_streams, options, cluster.LOOKS_OFTEN)
    of_librdkafka = {name: suite for name, suite in wanted.items() if name.startswith("librdkafka")}
    if of_librdkafka and options.librdkafka and (options.no_auto_create or not options.bootstrap_server):
        run_suites(of_librdkafka, options, cluster.NO_AUTO_CREATE)
    worse = report.differences(report.load(options.results / report.JSON_NAME))
    for line in worse:
        print(f"passes on Kafka and fails on Varve: {line}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    try:
        sys.exit(main())
    except varve.ClusterError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
