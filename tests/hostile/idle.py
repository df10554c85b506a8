"""Attackers that are told so run only when a processor is idle (SCHED_IDLE). So what nodes and clients that behave lose
by an attack is what the nodes do for it, and not what the attacker itself computes."""

from __future__ import annotations

import os
import sys

WHEN_IDLE = "--when-idle"


def run_when_idle() -> None:
    """If the command line says so."""
    if WHEN_IDLE not in sys.argv:
        return
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
