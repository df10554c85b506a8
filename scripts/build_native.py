"""Hatchling's hook: builds the parts in C into the wheel where there is a C compiler (pyproject.toml).

Without one the wheel is pure Python and does the same more slowly (storage/flusher.py, protocol/records/walk.py,
storage/compaction/key_table.py). A part that does not build is left out. The two modules need Python's header files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread")


class Part(NamedTuple):
    """What is compiled together. Paths are relative to the checkout, and may have wildcards."""

    library: str
    sources: str
    is_python_module: bool


PARTS = (
    Part("storage/native_flusher.so", "storage/native_flusher.c", is_python_module=False),
    # abi3: it uses the stable ABI of Python 3.11 and later versions (native.h).
    Part("protocol/records/_native.abi3.so", "protocol/records/native/*.c", is_python_module=True),
    Part("storage/compaction/_native.abi3.so", "storage/compaction/native/*.c", is_python_module=True),
)


class NativeBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
        if not sys.platform.startswith("linux") or compiler is None:
            return
        built = [part for part in PARTS if self._build(compiler, part)]
        if built:
            build_data["artifacts"] += [part.library for part in built]
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            python = "cp311-abi3" if any(part.is_python_module for part in built) else "py3-none"
            build_data["tag"] = f"{python}-{platform}"

    def _build(self, compiler: str, part: Part) -> bool:
        root = Path(self.root)
        # Renamed into place: nodes that run from this checkout have the old one mapped.
        unfinished = root / f"{part.library}.{os.getpid()}"
        headers = ("-I", sysconfig.get_path("include")) if part.is_python_module else ()
        sources = sorted(str(path) for path in root.glob(part.sources))
        built = subprocess.run(
            [compiler, *FLAGS, *headers, "-o", str(unfinished), *sources],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            self.app.display_warning(f"{part.sources} does not build, going on without it:\n{built.stderr}")
            return False
        unfinished.rename(root / part.library)
        return True
