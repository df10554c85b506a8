"""Runs a module of ours in a process of its own: `python -I .../broker/isolated.py MODULE [ARGUMENT]...`.

The names of our packages are generic. A `broker.py` in the working directory, or one on PYTHONPATH, must not be
imported instead of ours. So the process looks for packages first where this file lies, and never in the working
directory.
"""

from __future__ import annotations

import os
import runpy
import sys


def isolated_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours as a program, as much apart from its surroundings as this process is."""
    # -P: the folder of the script is not searched. PYTHONPATH may be where the packages are that we need.
    apart = ["-E", "-P"] if sys.flags.ignore_environment else ["-P"]
    flags = ["-I"] if sys.flags.isolated else apart
    return [sys.executable, *flags, os.path.abspath(__file__), module, *arguments]


if __name__ == "__main__":
    _, module, *arguments = sys.argv
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
