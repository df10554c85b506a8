"""`python -m varve`: the command `varve`, whatever modules of our names the working directory has."""

from __future__ import annotations

import runpy
import sys

from varve.packages import PACKAGES

if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGES))
    runpy.run_module("broker.cli", run_name="__main__", alter_sys=True)
