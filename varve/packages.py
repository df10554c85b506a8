"""Where the packages of the nodes are. Nothing of them is imported into the process of the user."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "_packages"
#: The folder that has `broker`, `protocol` and the others: below this package where it is installed, beside it in a
#: checkout.
PACKAGES = _INSTALLED if _INSTALLED.is_dir() else _HERE.parent


def isolated_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours as a program: without the working directory, PYTHONPATH, and other
    modules of our names."""
    # -I hides the packages of the user, too (`pip install --user`). They stay visible if Varve is one of them.
    user_packages = sysconfig.get_path("purelib", sysconfig.get_preferred_scheme("user"))
    flags = ["-E", "-P"] if _HERE.is_relative_to(user_packages) else ["-I"]
    return [sys.executable, *flags, str(PACKAGES / "broker" / "isolated.py"), module, *arguments]
