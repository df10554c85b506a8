"""Where the jars of Spark's connector come from: a real HTTP server stands in for the Maven repository."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.errors import ConnectorUnavailable
from pipeline.spark.connector import OWN_SET, PINNED_SET, JarSet, choose_connector, find_connector


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty Maven repository, the only one that can be reached; the cache is empty, too."""
    root = tmp_path / "repository"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"http://127.0.0.1:{server.server_port}/maven2/")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", str(tmp_path))  # no mvn
        yield root / "maven2"
        server.shutdown()
        thread.join()


def publish(repository: Path, jar_set: JarSet) -> list[bytes]:
    """A repository's files of a set; the contents of its jars."""
    contents = []
    for coordinates in jar_set.coordinates:
        group, artifact, version = coordinates.split(":")
        folder = repository / group.replace(".", "/") / artifact / version
        folder.mkdir(parents=True)
        content = coordinates.encode()
        jar = folder / f"{artifact}-{version}.jar"
        jar.write_bytes(content)
        jar.with_name(jar.name + ".sha1").write_text(hashlib.sha1(content).hexdigest())
        contents.append(content)
    return contents


@pytest.mark.parametrize("jar_set", [OWN_SET, PINNED_SET])
def test_the_jars_are_downloaded_once(repository: Path, jar_set: JarSet, tmp_path: Path) -> None:
    contents = publish(repository, jar_set)
    found = find_connector()
    assert [jar.read_bytes() for jar in found.jars] == contents
    assert "127.0.0.1" in found.source
    repository.rename(tmp_path / "gone")
    assert find_connector().jars == found.jars


def test_jars_that_came_damaged_are_refused_and_not_kept(repository: Path, tmp_path: Path) -> None:
    publish(repository, PINNED_SET)
    damaged = next(repository.rglob("kafka-clients*.jar"))
    damaged.write_bytes(b"half")
    with pytest.raises(ConnectorUnavailable, match="does not match its SHA-1"):
        find_connector()
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_each_way_says_why_it_failed(repository: Path) -> None:
    with pytest.raises(ConnectorUnavailable) as raised:
        find_connector()
    said = str(raised.value)
    assert said.count("404") == 2
    assert "no mvn on the PATH" in said
    assert "--connector-jars" in said


def test_a_folder_of_jars_is_taken_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConnectorUnavailable, match="holds no jars"):
        find_connector(tmp_path)
    (tmp_path / "a.jar").write_bytes(b"a")
    assert find_connector(tmp_path).jars == (tmp_path / "a.jar",)


def test_auto_warns_where_jvm_demands(repository: Path) -> None:
    warnings: list[str] = []
    assert choose_connector("auto", None, warnings.append) is None
    assert "READING THROUGH PYTHON INSTEAD" in warnings[0]
    with pytest.raises(ConnectorUnavailable):
        choose_connector("jvm", None, warnings.append)
    assert choose_connector("python", None, warnings.append) is None
    assert len(warnings) == 1
