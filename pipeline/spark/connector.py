"""Spark's own Kafka connector, unmodified: its jars, found before the session starts.

pyspark from PyPI lacks the connector, and the version that belongs to it may not exist in the package registry
that this machine reaches. Hence a list of ways, from the best to the last. The jars are given to the session as
`spark.jars`: a task that fails with jars added later (`ADD JAR`) does not say why.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyspark

from pipeline.errors import ConnectorUnavailable

ConnectorChoice = Literal["auto", "jvm", "python"]

# Both tested with the pinned set below, on pyspark 4.2.0 and 4.3.0.
_KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.2"
_COMMONS_POOL = "org.apache.commons:commons-pool2:2.13.1"
_PINNED_CONNECTOR_VERSION = "4.2.0"
_PINNED_TOKEN_PROVIDER_VERSION = "4.0.0"
_MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"
_DOWNLOAD_TIMEOUT_S = 30
_MVN_TIMEOUT_S = 180
#: The largest of the jars, kafka-clients, has 10 MB.
_MAX_JAR_BYTES = 64 << 20

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
        return [
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{self.connector_version}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{self.token_provider_version}",
            _KAFKA_CLIENTS,
            _COMMONS_POOL,
        ]

    def __str__(self) -> str:
        return f"connector {self.connector_version}, {_KAFKA_CLIENTS.split(':', 1)[1]}"


OWN_SET = JarSet(pyspark.__version__, pyspark.__version__)
PINNED_SET = JarSet(_PINNED_CONNECTOR_VERSION, _PINNED_TOKEN_PROVIDER_VERSION)


@dataclass(frozen=True, slots=True)
class Connector:
    """The connector's jars on this machine."""

    jars: tuple[Path, ...]
    source: str
    """Which they are and where they come from, for people."""


def choose_connector(
    choice: ConnectorChoice, jar_folder: Path | None, warn: Callable[[str], None]
) -> Connector | None:
    """What a session is to read with; None: not with the connector, but in Python.

    "jvm" demands the connector and raises ConnectorUnavailable; "auto" does without it, with a warning.
    """
    if choice == "python":
        return None
    try:
        return find_connector(jar_folder)
    except ConnectorUnavailable as error:
        if choice == "jvm":
            raise
        warn(f"{error}\nREADING THROUGH PYTHON INSTEAD: this run says nothing about Spark's connector.")
        return None


def find_connector(jar_folder: Path | None = None) -> Connector:
    """The jars of that folder; or else of this pyspark's own version, or a version that was tested with it, from our
    cache, a Maven repository or mvn. Raises ConnectorUnavailable with each way's reason."""
    if jar_folder is not None:
        jars = tuple(sorted(jar_folder.resolve().glob("*.jar")))
        if not jars:
            raise ConnectorUnavailable(f"{jar_folder} holds no jars")
        return Connector(jars, f"jars of {jar_folder}")
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or _MAVEN_CENTRAL
    ways: list[tuple[JarSet, str, Callable[[JarSet, Path], None]]] = [
        (OWN_SET, repository, partial(_download, repository)),
        (PINNED_SET, repository, partial(_download, repository)),
        (PINNED_SET, "mvn", _copy_by_maven),
    ]
    for jar_set in (OWN_SET, PINNED_SET):
        if cached := _cached(jar_set):
            return Connector(cached, f"{jar_set}, from {_cache_folder(jar_set)}")
    reasons: list[str] = []
    for jar_set, where, fetch in ways:
        try:
            jars = _fill_cache(jar_set, fetch)
        except (ConnectorUnavailable, OSError) as error:
            reasons.append(f"{where}, {jar_set}: {error}")
        else:
            return Connector(jars, f"{jar_set}, by {where}")
    raise ConnectorUnavailable(
        "Spark's Kafka connector cannot be had here:\n"
        + "\n".join(f"    {reason}" for reason in reasons)
        + "\nPut its jars into a folder and name it by --connector-jars, or set DEFAULT_ARTIFACT_REPOSITORY to a"
        " Maven repository that this machine reaches:\n"
        + "\n".join(f"    {coordinates}" for coordinates in PINNED_SET.coordinates)
    )


def _cache_folder(jar_set: JarSet) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "varve" / f"spark-connector-{jar_set.connector_version}"


def _cached(jar_set: JarSet) -> tuple[Path, ...]:
    """All jars of a set, or none."""
    jars = tuple(_cache_folder(jar_set) / _jar_name(coordinates) for coordinates in jar_set.coordinates)
    return jars if all(jar.is_file() for jar in jars) else ()


def _fill_cache(jar_set: JarSet, fetch: Callable[[JarSet, Path], None]) -> tuple[Path, ...]:
    """What is in the cache is whole: it comes by a rename, and two runs at once do no harm."""
    folder = _cache_folder(jar_set)
    arriving = folder.with_name(f"{folder.name}.{os.getpid()}")
    arriving.mkdir(parents=True)
    try:
        fetch(jar_set, arriving)
        folder.mkdir(exist_ok=True)
        for coordinates in jar_set.coordinates:
            name = _jar_name(coordinates)
            if not (arriving / name).is_file():
                raise ConnectorUnavailable(f"{name} did not come")
            (arriving / name).replace(folder / name)
    finally:
        shutil.rmtree(arriving)
    return _cached(jar_set)


def _jar_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def _download(repository: str, jar_set: JarSet, folder: Path) -> None:
    """Over HTTP, with the proxies of the environment; each jar is checked against the repository's SHA-1."""
    for coordinates in jar_set.coordinates:
        group, artifact, version = coordinates.split(":")
        name = _jar_name(coordinates)
        url = f"{repository.rstrip('/')}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
        jar, digest = _get(url), _get(url + ".sha1").split()[0].decode()
        if hashlib.sha1(jar, usedforsecurity=False).hexdigest() != digest:
            raise ConnectorUnavailable(f"{url} does not match its SHA-1")
        (folder / name).write_bytes(jar)


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as answer:
            body: bytes = answer.read(_MAX_JAR_BYTES)
    except urllib.error.HTTPError as error:
        raise ConnectorUnavailable(f"{url}: {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise ConnectorUnavailable(f"{url}: {error.reason}") from error
    return body


def _copy_by_maven(jar_set: JarSet, folder: Path) -> None:
    """Let mvn fetch them, with whatever mirrors and passwords its settings have here."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise ConnectorUnavailable("no mvn on the PATH")
    dependencies = "\n".join(_DEPENDENCY.format(*item.split(":")) for item in jar_set.coordinates)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    command = [
        mvn,
        "-q",
        "-B",
        "-f",
        "pom.xml",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_MVN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectorUnavailable(f"no end after {_MVN_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise ConnectorUnavailable((done.stdout.strip() or f"exit code {done.returncode}").splitlines()[0])
