"""Attackers that are told so run only when a processor is idle (SCHED_IDLE). So what nodes and clients that behave lose
by an attack is what the nodes do for it, and not what the attacker itself computes.

Where Linux groups the processes of each session (autogroup, sched(7)), the class counts only within a group, and each
group gets as much as any other: as much as a node. So an attacker has a session of its own, whose group comes last.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

WHEN_IDLE = "--when-idle"
_AUTOGROUP = Path("/proc/self/autogroup")
_LAST_NICE = 19


def run_when_idle() -> None:
    """If the command line says so."""
    if WHEN_IDLE not in sys.argv:
        return
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(_LAST_NICE)
    if _AUTOGROUP.exists():
        os.setsid()
        _AUTOGROUP.write_text(str(_LAST_NICE))
