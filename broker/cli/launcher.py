#!/usr/bin/env python3
"""The installed command `varve`: start Python again in isolated mode and run broker.cli there.

Our package names are generic (architecture.md section 1). Without isolation a folder called `broker` or
`storage` on PYTHONPATH would be imported in place of ours; so nothing of ours is imported before.
"""

import os
import site
import sys

if __name__ == "__main__":
    # -I hides the per-user packages as well; where that is the place we are installed in, keep them.
    in_user_site = os.path.abspath(__file__).startswith(site.getuserbase() + os.sep)
    isolation = ["-E", "-P"] if in_user_site else ["-I"]
    os.execv(sys.executable, [sys.executable, *isolation, "-m", "broker.cli", *sys.argv[1:]])
