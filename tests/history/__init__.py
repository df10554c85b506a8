"""What clients of a Kafka cluster did and saw, and whether a correct cluster can have caused it (README.md here)."""

from __future__ import annotations

from tests.history.checker import Verdict, check
from tests.history.findings import Finding, Kind
from tests.history.operations import HistoryError, parse

__all__ = ["Finding", "HistoryError", "Kind", "Verdict", "check", "parse"]
