from __future__ import annotations

from benchmark.cli import run

run()
