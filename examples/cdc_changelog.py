"""A changelog of a database table, as Debezium writes it: an envelope with the row before and after each change, and
after a deletion a record without a value, so that compaction forgets the key.

After compaction, a new reader builds the same table from the records that are left."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tables import Table, bootstrap_server, view

Row = Mapping[str, object]
ORDERS = 20


class Capture:
    """Stands in for Debezium: tells the topic of each change of the table."""

    def __init__(self, topic: Table) -> None:
        self._topic = topic
        self.rows: dict[str, Row] = {}

    def set_row(self, key: str, row: Row) -> None:
        before = self.rows.get(key)
        self.rows[key] = row
        self._tell(key, "c" if before is None else "u", before, row)

    def delete_row(self, key: str) -> None:
        self._tell(key, "d", self.rows.pop(key), None)
        self._topic.put(key, None)

    def _tell(self, key: str, operation: str, before: Row | None, after: Row | None) -> None:
        self._topic.put(key, json.dumps({"op": operation, "before": before, "after": after}))


def row_after(envelope: str) -> Row | None:
    """None: the change has deleted the row."""
    after: Row | None = json.loads(envelope)["after"]
    return after


def main() -> None:
    topic = Table(bootstrap_server(__doc__), "shop.orders", {"min.cleanable.dirty.ratio": "0.3"})
    capture = Capture(topic)
    for number in range(ORDERS):
        for state in ("placed", "paid", "shipped"):
            capture.set_row(f"order-{number}", {"id": number, "state": state})
    for number in range(0, ORDERS, 2):
        capture.delete_row(f"order-{number}")

    rows, count = view(topic, row_after)
    assert rows == capture.rows
    print(f"{len(rows)} orders from {count} records")


if __name__ == "__main__":
    main()
