"""Times as commands print and read them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of a time such as 2026-11-27T10:00. Without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def iso(time_ms: int) -> str | None:
    """To the second, in UTC: 2026-11-26T08:15:36Z. None for a negative one: there is no such time."""
    if time_ms < 0:
        return None
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
