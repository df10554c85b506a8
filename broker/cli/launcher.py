#!/usr/bin/env python3
"""The installed command `varve`: it starts Python again in isolated mode and runs the package varve there.

Our package names are generic (architecture.md section 1). Without isolation, a folder called `broker` or `storage` on
PYTHONPATH would be imported instead of ours. So this script imports nothing of ours.
"""

import os
import signal
import site
import sys

if __name__ == "__main__":
    # Ctrl-C would print a traceback of Python's own start. broker.cli takes it again.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # -I hides the per-user packages, too. They stay visible if Varve is installed there.
    in_user_site = os.path.abspath(__file__).startswith(site.getuserbase() + os.sep)
    isolation = ["-E", "-P"] if in_user_site else ["-I"]
    os.execv(sys.executable, [sys.executable, *isolation, "-m", "varve", *sys.argv[1:]])
