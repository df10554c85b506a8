"""Times as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(time_ms: int) -> str | None:
    """To the second, in UTC: 2026-11-26T08:15:36Z. None for a negative one: there is no such time."""
    if time_ms < 0:
        return None
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
