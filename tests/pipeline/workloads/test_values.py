"""Values that look like those of applications."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from pipeline.load.job import inputs
from pipeline.workloads.spec import RunSpec, ValueKind

SHOP = RunSpec("t", 2000, 5, 100, 100, 2, None, 1_795_000_000_000, values=ValueKind.SHOP)
AUCTION = dataclasses.replace(SHOP, values=ValueKind.AUCTION)
GOLDEN = Path(__file__).parent / "shop.jsonl"
#: Of the events in the golden file.
GOLDEN_RECORDS = 2000


def records(spark: SparkSession, spec: RunSpec) -> list[tuple[bytes, bytes | None]]:
    rows = inputs(spark, spec).orderBy("sequence").collect()
    return [(bytes(row["key"]), None if row["value"] is None else bytes(row["value"])) for row in rows]


def test_each_row_of_the_shop_is_created_updated_and_perhaps_deleted(spark: SparkSession) -> None:
    changes: defaultdict[bytes, list[dict[str, Any] | None]] = defaultdict(list)
    for key, value in records(spark, SHOP):
        changes[key].append(None if value is None else json.loads(value))
    whole = [life for life in changes.values() if len(life) == 6]
    assert len(whole) > 100
    fates = Counter("".join("-" if change is None else change["op"] for change in life) for life in whole)
    assert set(fates) == {"cuuuuu", "cuuud-"}
    for life in whole:
        events = [change for change in life if change is not None]
        # Debezium's promise: what is before a change is what was behind the last one.
        assert events[0]["before"] is None
        for earlier, later in pairwise(events):
            assert later["before"] == earlier["after"]
        if life[-1] is None:
            assert events[-1]["after"] is None
        assert len({event["source"]["table"] for event in events}) == 1
    tables = {life[0]["source"]["table"] for life in whole if life[0] is not None}
    assert tables == {"customers", "orders", "items"}


def test_the_shop_of_a_seed_never_changes(spark: SparkSession) -> None:
    """A file of another version's run could not be verified otherwise, and users feed it to other tools."""
    found = [
        {"key": json.loads(key), "value": None if value is None else json.loads(value)}
        for key, value in records(spark, SHOP)
    ]
    assert len(found) == GOLDEN_RECORDS
    assert found == [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def test_an_auction_house_has_its_proportions_and_bids_on_what_is_there(spark: SparkSession) -> None:
    events = [json.loads(value) for _, value in records(spark, AUCTION) if value is not None]
    kinds = Counter(event["type"] for event in events)
    assert (kinds["person"], kinds["auction"], kinds["bid"]) == (40, 120, 1840)
    opened: set[int] = set()
    for event in events:
        if event["type"] == "auction":
            assert event["id"] not in opened
            opened.add(event["id"])
        elif event["type"] == "bid":
            assert event["auction"] in opened
