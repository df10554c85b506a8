"""Deadlines that are set, put off and dropped, compared with a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.deadlines import MAX_DROPPED, Deadlines

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 4), st.none() | st.integers(0, 50)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 50)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("max_dropped", [0, 1000])
@given(EVENTS)
def test_due_keys_agree_with_a_plain_dict(
    max_dropped: int, events: list[tuple[str, int, int | None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.coordinator.deadlines.MAX_DROPPED", max_dropped)
        _compare_with_a_plain_dict(events)


def _compare_with_a_plain_dict(events: list[tuple[str, int, int | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, float] = {}
    for what, key, time in events:
        if what == "set":
            deadlines.set(key, time)
            plain.pop(key, None)
            if time is not None:
                plain[key] = time
        else:
            assert time is not None
            due = deadlines.take_due(time)
            assert sorted(due) == sorted(key for key, at in plain.items() if at <= time)
            for key in due:
                del plain[key]
        following = deadlines.next()
        assert (following is None) == (not plain) or following is not None
        assert not plain or (following is not None and following <= min(plain.values()))
        assert len(deadlines) == len(plain)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_keys_beyond_the_limit_are_still_due(most: int) -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(5):
        deadlines.set(key, key)
    taken: list[int] = []
    while (following := deadlines.next()) is not None and following <= 3:
        part = deadlines.take_due(3, most)
        assert len(part) <= most
        taken += part
    assert taken == [0, 1, 2, 3]
    assert deadlines.take_due(4) == [4]


def test_a_deadline_that_is_put_off_a_thousand_times_is_one_heap_entry() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time in range(1000):
        deadlines.set("member", time)
    assert len(deadlines._heap) == 1
    assert deadlines.take_due(998) == []
    assert deadlines.take_due(999) == ["member"]
    assert deadlines.next() is None


def test_keys_that_come_and_go_leave_few_entries() -> None:
    """A member may have a session of half an hour and leave at once."""
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("stays", 10_000)
    for number in range(20_000):
        deadlines.set(f"member {number}", 5_000)
        deadlines.set(f"member {number}", None)
        assert len(deadlines._heap) <= MAX_DROPPED + 4 and len(deadlines._entries) <= MAX_DROPPED + 4
    assert deadlines.take_due(9_999) == [] and deadlines.take_due(10_000) == ["stays"]
