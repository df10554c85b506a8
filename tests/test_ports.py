"""Ports that tests are given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports

ROOT = Path(__file__).parent.parent


def test_no_port_is_given_to_two_processes() -> None:
    """Two processes that look at the same place at the same time, before a broker of either listens."""
    ours = ports.free_ports(3)
    program = f"""
import itertools
from tests import ports
ports._next_ports = itertools.cycle({ours})
try:
    print(ports.free_ports(1))
except AssertionError as error:
    print(error)
"""
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == "no free ports\n"


def test_ports_are_given_again_when_many_others_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOCKED_AT_ONCE", 4)
    seen = [port for _ in range(8) for port in ports.free_ports(2)]
    assert len(set(seen)) == 16, "the next ones each time"
    assert len(ports._locks) <= ports.LOCKED_AT_ONCE
