"""`python -m benchmarks`: the command of scripts/bench."""

from __future__ import annotations

from benchmarks.cli import run

run()
