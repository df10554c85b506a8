"""Spark's own Kafka connector, unmodified: where its jars come from, in a running session.

pyspark from PyPI lacks the connector, and the version that belongs to it may not exist in the package registry
that this machine reaches. Hence a list of ways, from the best to the last.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from pipeline.errors import ConnectorUnavailable

# Both tested with the pinned set below, on pyspark 4.2.0 and 4.3.0.
_KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.2"
_COMMONS_POOL = "org.apache.commons:commons-pool2:2.13.1"
_PINNED_CONNECTOR_VERSION = "4.2.0"
_PINNED_TOKEN_PROVIDER_VERSION = "4.0.0"
_MVN_TIMEOUT_S = 180

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>varve</groupId><artifactId>spark-connector</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """The four jars that pip's pyspark needs on top of its own."""

    connector_version: str
    token_provider_version: str

    @property
    def coordinates(self) -> list[str]:
        """The connector last: a set that is not complete must not leave it in the session."""
        return [
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{self.token_provider_version}",
            _KAFKA_CLIENTS,
            _COMMONS_POOL,
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{self.connector_version}",
        ]

    def __str__(self) -> str:
        return f"connector {self.connector_version}, {_KAFKA_CLIENTS.split(':', 1)[1]}"


OWN_SET = JarSet(pyspark.__version__, pyspark.__version__)
PINNED_SET = JarSet(_PINNED_CONNECTOR_VERSION, _PINNED_TOKEN_PROVIDER_VERSION)


def attach_connector(spark: SparkSession, jar_folder: Path | None = None) -> str:
    """Make `format("kafka")` work in the session; says which jars it took and from where.

    Raises ConnectorUnavailable with each way's reason.
    """
    if jar_folder is not None:
        jars = sorted(jar_folder.glob("*.jar"))
        if not jars:
            raise ConnectorUnavailable(f"{jar_folder} holds no jars")
        _add_jars(spark, jars)
        return f"jars of {jar_folder}"
    reasons: list[str] = []
    for jar_set in (OWN_SET, PINNED_SET):
        try:
            for coordinates in jar_set.coordinates:
                spark.sql(f"ADD JAR 'ivy://{coordinates}?transitive=false'")
        except Exception as error:  # Py4J's own tree, or Spark's: either way this set cannot be had
            reasons.append(f"Ivy, {jar_set}: {_first_line(error)}")
        else:
            return f"{jar_set}, by Ivy"
    try:
        _add_jars(spark, _jars_by_maven(PINNED_SET))
    except ConnectorUnavailable as error:
        reasons.append(f"mvn, {PINNED_SET}: {error}")
    else:
        return f"{PINNED_SET}, by mvn"
    raise ConnectorUnavailable(
        "Spark's Kafka connector cannot be had here:\n"
        + "\n".join(f"    {reason}" for reason in reasons)
        + "\nPut its jars into a folder and name it by --connector-jars, or set DEFAULT_ARTIFACT_REPOSITORY to a"
        " Maven repository that this machine reaches:\n"
        + "\n".join(f"    {coordinates}" for coordinates in PINNED_SET.coordinates)
    )


def _add_jars(spark: SparkSession, jars: list[Path]) -> None:
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")


def _jars_by_maven(jar_set: JarSet) -> list[Path]:
    """Let mvn, with whatever settings it has here, copy the jars into our cache."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise ConnectorUnavailable("no mvn on the PATH")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "varve" / f"spark-connector-{jar_set.connector_version}"
    jars = folder / "jars"
    if len(found := sorted(jars.glob("*.jar"))) == len(jar_set.coordinates):
        return found
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "\n".join(_DEPENDENCY.format(*item.split(":")) for item in jar_set.coordinates)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    command = [mvn, "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_MVN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectorUnavailable(f"no end after {_MVN_TIMEOUT_S} s") from error
    found = sorted(jars.glob("*.jar"))
    if done.returncode != 0 or len(found) != len(jar_set.coordinates):
        raise ConnectorUnavailable((done.stdout.strip() or f"{len(found)} jars came").splitlines()[0])
    return found


def _first_line(error: Exception) -> str:
    """The message without Java's stack. Py4J's own first line says nothing; the next one, after a colon, does."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[1].removeprefix(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]
