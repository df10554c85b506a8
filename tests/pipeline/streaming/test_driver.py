"""What a checkpoint says about the batch that a killed driver had begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.streaming.driver import Repeated, unfinished_batch


def log(checkpoint: Path, begun: dict[int, dict[str, int]], ended: list[int]) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    for batch, offsets in begun.items():
        lines = ["v1", json.dumps({"batchTimestampMs": 0}), json.dumps({"t": offsets})]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
        # As Spark's file system leaves them beside.
        (checkpoint / "offsets" / f".{batch}.crc").touch()
    for batch in ended:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_a_batch_that_ended_is_not_repeated(tmp_path: Path) -> None:
    assert unfinished_batch(tmp_path) is None
    log(tmp_path, {9: {"0": 5}, 10: {"0": 7}}, [9, 10])
    assert unfinished_batch(tmp_path) is None


def test_a_batch_under_way_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    log(tmp_path, {9: {"0": 5, "1": 2}, 10: {"0": 7, "1": 2}}, [9])
    assert unfinished_batch(tmp_path) == Repeated(10, {"0": 5, "1": 2}, {"0": 7, "1": 2})


def test_the_first_batch_begins_at_the_start_of_the_topic(tmp_path: Path) -> None:
    log(tmp_path, {0: {"0": 4}}, [])
    assert unfinished_batch(tmp_path) == Repeated(0, {}, {"0": 4})
