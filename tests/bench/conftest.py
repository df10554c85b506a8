"""The benchmark is not part of the distribution: its package lies beside the script that runs it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "bench.d"))
