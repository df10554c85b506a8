"""A session store: who is logged in, in a compacted topic. The process that holds the table may die: the next one
reads the topic and goes on. Logging out is a deletion (a record without a value), which stays for
delete.retention.ms, so that a reader that is behind hears of it, too.

cleanup.policy=compact,delete forgets sessions that nobody has touched for retention.ms."""

from __future__ import annotations

import json

from tables import Table, bootstrap_server, view


class Sessions:
    """In memory, and in the topic."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.open, _ = view(table, str)

    def log_in(self, user: str, device: str) -> None:
        self._set(user, json.dumps({"device": device}))

    def log_out(self, user: str) -> None:
        self._set(user, None)

    def _set(self, user: str, session: str | None) -> None:
        self._table.put(user, session)  # first: what is in memory alone is lost with the process
        if session is None:
            self.open.pop(user, None)
        else:
            self.open[user] = session


def main() -> None:
    table = Table(
        bootstrap_server(__doc__),
        "sessions",
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(30 * 24 * 3600 * 1000),
            "delete.retention.ms": str(3600 * 1000),
            "segment.ms": str(600 * 1000),
        },
    )
    sessions = Sessions(table)
    sessions.log_in("ann", "laptop")
    sessions.log_in("bob", "phone")
    sessions.log_in("ann", "phone")
    sessions.log_out("bob")

    restarted = Sessions(table)
    assert restarted.open == sessions.open
    for user, session in sorted(restarted.open.items()):
        print(f"{user}: {session}")
    print("bob is logged out" if "bob" not in restarted.open else "bob is logged in")


if __name__ == "__main__":
    main()
