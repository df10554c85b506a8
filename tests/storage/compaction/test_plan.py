"""Which part of a log is cleaned, when, and in which groups."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.compaction.counts import Expiry
from storage.compaction.held_back import HeldBack
from storage.compaction.plan import (
    CompactionSettings,
    LogFacts,
    Obstacle,
    Plan,
    SegmentFacts,
    Trigger,
    group_segments,
    make_plan,
)
from storage.segment_files import MAX_RELATIVE_OFFSET

NOW_MS = 100_000
NO_LIMIT_MS = 2**63 - 1
SETTINGS = CompactionSettings(
    is_compacted=True,
    min_compaction_lag_ms=0,
    max_compaction_lag_ms=NO_LIMIT_MS,
    min_cleanable_dirty_ratio=0.5,
)


def segment(base: int, end: int, size: int = 100, newest_ms: int = 50, dirty_ms: int = 40) -> SegmentFacts:
    return SegmentFacts(base, end, size, newest_ms, dirty_ms)


#: Three sealed segments, and the active one.
SEGMENTS = [segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 35)]


def plan(
    segments: list[SegmentFacts] = SEGMENTS,
    settings: CompactionSettings = SETTINGS,
    now_ms: int = NOW_MS,
    **changes: Any,
) -> Plan:
    end = segments[-1].end_offset
    facts = LogFacts(segments, 0, -1, end, end, -1, -1, HeldBack())._replace(**changes)
    made = make_plan(facts, settings, now_ms)
    assert (made.trigger is None) is (made.obstacle is not None)
    assert made.is_due is (made.trigger is not None)
    return made


def dirty_range(made: Plan) -> tuple[int, int]:
    return made.first_dirty_offset, made.first_uncleanable_offset


def test_everything_below_the_active_segment_is_cleaned_at_first() -> None:
    made = plan()
    assert dirty_range(made) == (0, 30)
    assert (made.clean_bytes, made.dirty_bytes, made.dirty_ratio) == (0, 300, 1.0)
    assert made.range_limit is Obstacle.ACTIVE_SEGMENT
    assert made.trigger is Trigger.DIRTY_RATIO


def test_the_active_segment_is_never_compacted() -> None:
    made = plan(segments=SEGMENTS[-1:], log_start_offset=30)
    assert dirty_range(made) == (30, 30)
    assert made.obstacle is Obstacle.ACTIVE_SEGMENT
    assert plan(cleaned_end_offset=30).obstacle is Obstacle.ACTIVE_SEGMENT


def test_nothing_is_dirty_when_the_active_segment_is_empty() -> None:
    made = plan(segments=[*SEGMENTS[:3], segment(30, 30, 0)], cleaned_end_offset=30)
    assert made.obstacle is made.range_limit is Obstacle.NOTHING_DIRTY
    assert made.dirty_ratio == 0.0


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    assert plan(settings=SETTINGS._replace(is_compacted=False)).obstacle is Obstacle.POLICY


@pytest.mark.parametrize(("cleaned_end", "is_due"), [(-1, True), (10, True), (20, False)])
def test_a_log_is_cleaned_when_more_than_the_ratio_of_it_is_dirty(cleaned_end: int, is_due: bool) -> None:
    made = plan(cleaned_end_offset=cleaned_end)
    assert made.dirty_bytes / 300 == pytest.approx(made.dirty_ratio)
    assert made.is_due is is_due
    assert made.obstacle is (None if is_due else Obstacle.DIRTY_RATIO)


def test_exactly_the_ratio_is_not_more() -> None:
    assert not plan(segments=[*SEGMENTS[:2], SEGMENTS[3]], cleaned_end_offset=10).is_due


def test_a_ratio_of_zero_asks_only_for_something_dirty() -> None:
    eager = SETTINGS._replace(min_cleanable_dirty_ratio=0.0)
    assert plan(settings=eager, cleaned_end_offset=20).is_due
    assert not plan(settings=eager, cleaned_end_offset=30).is_due


def test_a_segment_in_which_the_last_map_ended_is_dirty_as_a_whole() -> None:
    made = plan(cleaned_end_offset=13)
    assert dirty_range(made) == (13, 30)
    assert (made.clean_bytes, made.dirty_bytes) == (100, 200)


def test_the_log_start_raises_what_is_clean() -> None:
    assert dirty_range(plan(log_start_offset=13, cleaned_end_offset=5)) == (13, 30)


@pytest.mark.parametrize("last_stable_offset", [20, 21, 29])
def test_a_segment_is_cleaned_only_wholly_below_the_last_stable_offset(last_stable_offset: int) -> None:
    made = plan(last_stable_offset=last_stable_offset)
    assert dirty_range(made) == (0, 20)
    assert made.range_limit is Obstacle.LAST_STABLE_OFFSET
    made = plan(last_stable_offset=last_stable_offset, cleaned_end_offset=20)
    assert made.obstacle is Obstacle.LAST_STABLE_OFFSET


def test_nothing_is_cleaned_above_the_high_watermark() -> None:
    made = plan(high_watermark=19, last_stable_offset=19)
    assert dirty_range(made) == (0, 10)
    assert made.range_limit is Obstacle.HIGH_WATERMARK


def test_a_segment_with_a_young_record_waits_for_the_minimum_lag() -> None:
    segments = [segment(0, 10, newest_ms=89_000), segment(10, 20, newest_ms=91_000), SEGMENTS[3]]
    lag = SETTINGS._replace(min_compaction_lag_ms=10_000)
    assert dirty_range(plan(segments, lag)) == (0, 10)
    assert plan(segments, lag).range_limit is Obstacle.MIN_LAG
    assert plan(segments, lag, cleaned_end_offset=10).obstacle is Obstacle.MIN_LAG
    assert dirty_range(plan(segments, lag, now_ms=101_000)) == (0, 30)


def test_without_a_minimum_lag_times_ahead_of_the_clock_do_not_matter() -> None:
    assert dirty_range(plan([segment(0, 30, newest_ms=NOW_MS + 9999), SEGMENTS[3]])) == (0, 30)


def test_a_dirty_record_older_than_the_maximum_lag_makes_a_log_due() -> None:
    lag = SETTINGS._replace(max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    segments = [segment(0, 10, dirty_ms=-1), segment(10, 30, dirty_ms=NOW_MS - 1000), SEGMENTS[3]]
    made = plan(segments, lag, cleaned_end_offset=10)
    assert made.oldest_dirty_ms == NOW_MS - 1000
    assert made.obstacle is Obstacle.DIRTY_RATIO
    assert plan(segments, lag, now_ms=NOW_MS + 1, cleaned_end_offset=10).trigger is Trigger.MAX_LAG


@pytest.mark.parametrize("kind", HeldBack._fields)
def test_a_pass_is_due_when_something_may_go_and_nothing_is_dirty(kind: str) -> None:
    bound = "max_tombstone_remove_offset" if kind == "tombstones" else "max_transaction_remove_offset"
    held = HeldBack(**{kind: Expiry(NOW_MS, 15)})
    clean: dict[str, Any] = {"cleaned_end_offset": 30, "held": held}
    clean[bound] = 15
    assert plan(**clean).trigger is Trigger.EXPIRED
    assert not plan(now_ms=NOW_MS - 1, **clean).is_due
    assert not plan(**clean | {bound: 14}).is_due
    lazy = SETTINGS._replace(min_cleanable_dirty_ratio=1.0)
    assert not plan(settings=lazy, **clean | {"cleaned_end_offset": 14}).is_due, "a pass would not remove it"


def test_the_dirtiest_log_comes_first_and_internal_topics_before_it() -> None:
    dirty, clean = plan(), plan(cleaned_end_offset=20)
    order = [(clean, False), (clean, True), (dirty, False), (dirty, True)]
    order.sort(key=lambda each: each[0].urgency(is_internal=each[1]), reverse=True)
    assert order == [(dirty, True), (clean, True), (dirty, False), (clean, False)]


# -- groups


def bases(
    segments: list[SegmentFacts], map_end: int, segment_bytes: int = 250, *, range_end: int = sys.maxsize
) -> list[list[int]]:
    groups = group_segments(segments, range_end, map_end, segment_bytes)
    return [[each.base_offset for each in group] for group in groups]


def test_small_neighbours_become_one_segment() -> None:
    assert bases(SEGMENTS, 30) == [[0, 10], [20]]
    assert bases(SEGMENTS, 30, 300) == [[0, 10, 20]]
    assert bases(SEGMENTS, 30, 99) == [[0], [10], [20]]


def test_segments_above_the_end_of_the_pass_and_the_active_one_are_in_no_group() -> None:
    assert bases(SEGMENTS, 20, 1000) == [[0, 10]]
    assert bases(SEGMENTS, 21, 1000) == [[0, 10, 20]]
    assert bases(SEGMENTS, 0) == []
    assert bases(SEGMENTS, 35, 1000) == [[0, 10, 20]]


def test_a_segment_that_the_dirty_range_ends_in_is_in_no_group() -> None:
    assert bases(SEGMENTS, 21, 1000, range_end=29) == [[0, 10]]
    assert bases(SEGMENTS, 21, 1000, range_end=30) == [[0, 10, 20]]


def test_a_group_spans_no_more_offsets_than_an_index_can_name() -> None:
    base = 7
    for last_offset, expected in [(base + MAX_RELATIVE_OFFSET, 1), (base + MAX_RELATIVE_OFFSET + 1, 2)]:
        segments = [
            segment(base, 10),
            segment(10, last_offset + 1),
            segment(last_offset + 1, last_offset + 1),
        ]
        assert len(bases(segments, last_offset + 1, 1000)) == expected


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(0, 310), st.integers(1, 400))
@settings(database=None)
def test_groups_cover_the_sealed_segments_in_order(sizes: list[int], end: int, segment_bytes: int) -> None:
    segments = [segment(10 * at, 10 * at + 10, size) for at, size in enumerate(sizes)]
    groups = list(group_segments(segments, sys.maxsize, end, segment_bytes))
    assert [each for group in groups for each in group] == [s for s in segments[:-1] if s.base_offset < end]
    sums = [sum(each.size_bytes for each in group) for group in groups]
    assert all(total <= segment_bytes for group, total in zip(groups, sums, strict=True) if len(group) > 1)
    for total, following in zip(sums, groups[1:], strict=False):
        assert total + following[0].size_bytes > segment_bytes
