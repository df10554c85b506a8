"""What an experiment is: a question put to a cluster, and findings that are computed from figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.report.sweep import Sweep

if TYPE_CHECKING:
    from pipeline.lab.bench import Bench


@dataclass(frozen=True, slots=True)
class Experiment:
    name: str
    summary: str
    run: Callable[[Bench], Sweep]
