"""`python -m tests.hostile.attacks NAME [--when-idle]`: one attack, in a process of its own. The target is read from
stdin as JSON, and what was seen is written to stdout as JSON.
"""

from __future__ import annotations

import json
import sys

from tests.hostile.attacks.registry import ATTACKS
from tests.hostile.idle import run_when_idle
from tests.hostile.target import Target


def main() -> None:
    run_when_idle()
    seen = ATTACKS[sys.argv[1]](Target.from_dict(json.load(sys.stdin)))
    json.dump({"counts": seen.counts, "defects": seen.defects}, sys.stdout)


if __name__ == "__main__":
    main()
