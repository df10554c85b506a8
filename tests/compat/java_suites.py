"""Our scenarios for the Java clients and Kafka Streams (java/*.java), compiled here against a Kafka's class path."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.compat.report import HERE, SuiteResult
from tests.compat.suite import ROOT, Missing, Target, last_lines, need, read_json_lines, run

SOURCES = HERE / "java"
CLASSES = ROOT / "build" / "compat" / "java-classes"
#: A Kafka's jars by Maven; beside the checkout in development, elsewhere named by --kafka-classpath.
KAFKA_TOOL = ROOT.parent / "shared" / "tools" / "apache-kafka"
INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jdk-headless"
HEAP = "-Xmx300m"
CLIENTS_TIMEOUT_S = 900


def class_path(named: str | None) -> str:
    """The jars of a Kafka: those that the user named, or those that the development tool fetches."""
    need("java", INSTALL_JAVA)
    if named:
        return named
    if not KAFKA_TOOL.exists():
        raise Missing("no class path of a Kafka; this helps: --kafka-classpath '/opt/kafka/libs/*'")
    ran = run([KAFKA_TOOL, "classpath"], ROOT / "build" / "compat" / "classpath.log", 600)
    if ran.code != 0:
        raise Missing(f"Kafka's jars could not be fetched: {last_lines(ran.output)}")
    return ran.output.strip().splitlines()[-1]


def version(jars: str) -> str:
    found = sorted(Path(jars.rstrip("*")).glob("kafka-clients-*.jar"))
    return found[-1].stem.removeprefix("kafka-clients-") if found else "of an unknown version"


def run_clients(target: Target, named_class_path: str | None, date: str) -> SuiteResult:
    """Producer, consumer in both protocols, AdminClient."""
    try:
        jars = class_path(named_class_path)
        compile_sources(jars)
    except Missing as missing:
        return SuiteResult("java", "Java clients", date, str(missing))
    result = SuiteResult("java", f"Java clients {version(jars)}", date)
    for main_class in ("Clients", "Administration", "Transactions"):
        arguments = [target.bootstrap, *target.only]
        ran = run(
            java(jars, main_class, arguments), target.logs / f"java-{main_class}.log", CLIENTS_TIMEOUT_S
        )
        result.cases |= read_json_lines(target, ran)
    return result


def run_streams(target: Target, named_class_path: str | None, seconds: int, date: str) -> SuiteResult:
    """The word count, whose repartition topic has to stay small."""
    try:
        jars = class_path(named_class_path)
        compile_sources(jars)
    except Missing as missing:
        return SuiteResult("streams", "Kafka Streams", date, str(missing))
    state = target.logs / "streams-state"
    shutil.rmtree(state, ignore_errors=True)
    command = java(jars, "WordCount", [target.bootstrap, str(seconds), str(state)])
    ran = run(command, target.logs / "streams.log", seconds + 240)
    print(f"  {last_lines(ran.output, 1)}", file=sys.stderr)
    return SuiteResult("streams", f"Kafka Streams {version(jars)}", date, "", read_json_lines(target, ran))


def compile_sources(jars: str) -> None:
    javac = need("javac", INSTALL_JAVA)
    CLASSES.mkdir(parents=True, exist_ok=True)
    log = CLASSES.with_suffix(".log")
    ran = run([javac, "-d", CLASSES, "-cp", jars, *sorted(SOURCES.glob("*.java"))], log, 300)
    if ran.code != 0:
        raise Missing(f"our scenarios do not compile against {jars}, see {log}: {last_lines(ran.output)}")


def java(jars: str, main_class: str, arguments: list[str]) -> list[str]:
    logging = SOURCES / "log4j2.properties"
    return [
        "java",
        HEAP,
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        f"{CLASSES}:{jars}",
        main_class,
        *arguments,
    ]
