"""Where the packages of the nodes are. Nothing of them is imported into the process of the user."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "_packages"
#: The folder that has `broker`, `protocol` and the others: below this package where it is installed, beside it in a
#: checkout.
PACKAGES = _INSTALLED if _INSTALLED.is_dir() else _HERE.parent


def isolated_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours as a program. The working directory is not searched, and our packages
    come before all others of their names."""
    return [sys.executable, *_flags(), str(PACKAGES / "broker" / "isolated.py"), module, *arguments]


def _flags() -> list[str]:
    """-I, unless that would hide what Varve needs: it does not see the packages of the user (`pip install --user`), nor
    those on PYTHONPATH (`pip install --target`)."""
    search_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if str(_HERE.parent) in map(os.path.realpath, search_path):
        return ["-P"]
    user_packages = sysconfig.get_path("purelib", sysconfig.get_preferred_scheme("user"))
    return ["-E", "-P"] if _HERE.parent == Path(user_packages).resolve() else ["-I"]
