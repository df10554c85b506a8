"""Hatchling's hook: builds storage/native_flusher.c into the wheel where there is a C compiler (pyproject.toml).

Without one the wheel is pure Python and does the same more slowly (storage/flusher.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("storage", "native_flusher.c")
LIBRARY = SOURCE.with_suffix(".so")
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread")


class NativeBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
        if not sys.platform.startswith("linux") or compiler is None:
            return
        root = Path(self.root)
        # Renamed into place: nodes that run from this checkout have the old one mapped.
        unfinished = root / f"{LIBRARY}.{os.getpid()}"
        built = subprocess.run(
            [compiler, *FLAGS, "-o", str(unfinished), str(root / SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            self.app.display_warning(f"{SOURCE} does not build, going on without it:\n{built.stderr}")
            return
        unfinished.rename(root / LIBRARY)
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
