"""What clients of a Kafka cluster did and saw, and whether a correct cluster can have caused it (README.md here)."""

from __future__ import annotations

from pipeline.history.checker import Verdict, check
from pipeline.history.findings import Finding, Kind
from pipeline.history.operations import HistoryError, parse

__all__ = ["Finding", "HistoryError", "Kind", "Verdict", "check", "parse"]
