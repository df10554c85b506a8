"""When brokers and the driver are killed."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.streaming.faults import plan


def test_ten_minutes_have_nine_kills_a_minute_apart_and_none_at_the_end() -> None:
    assert plan(600.0, 60.0, kills_driver=False) == [(60.0 * n, "broker") for n in range(1, 10)]


def test_the_driver_has_its_turn_in_the_middle() -> None:
    assert plan(60.0, 20.0, kills_driver=True) == [(20.0, "broker"), (30.0, "driver"), (40.0, "broker")]


def test_a_stream_shorter_than_the_interval_has_no_kill() -> None:
    assert plan(20.0, 60.0, kills_driver=False) == []
    assert plan(20.0, None, kills_driver=False) == []
