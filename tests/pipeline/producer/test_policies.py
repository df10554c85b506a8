"""Backoff, breaker, throttle and retries: plain values that are told the time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.producer import (
    AdaptiveThrottle,
    BreakerSettings,
    BreakerState,
    CircuitBreaker,
    ErrorClass,
    ErrorRule,
    FullJitterBackoff,
    RetryPolicy,
    ThrottleSettings,
    Written,
)
from pipeline.producer.rolling import RollingCount

# -- backoff -----------------------------------------------------------------------------------------------


@given(attempts=st.integers(1, 10_000), seed=st.integers())
def test_a_delay_lies_between_floor_and_ceiling(attempts: int, seed: int) -> None:
    backoff = FullJitterBackoff(floor_s=0.05, base_s=0.2, cap_s=10)
    assert 0.05 <= backoff.delay_s(attempts, Random(seed)) <= backoff.ceiling_s(attempts) <= 10


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    backoff = FullJitterBackoff(floor_s=0, base_s=0.2, cap_s=1)
    assert [backoff.ceiling_s(attempts) for attempts in range(1, 6)] == [0.2, 0.4, 0.8, 1, 1]


def test_the_jitter_is_full() -> None:
    """Delays fill the whole range evenly: a tenth of them in each tenth of it."""
    backoff = FullJitterBackoff(floor_s=0, base_s=1, cap_s=1)
    rng = Random(1)
    tenths = [0] * 10
    for _ in range(10_000):
        tenths[int(backoff.delay_s(1, rng) * 10)] += 1
    assert min(tenths) > 850 and max(tenths) < 1_150


@pytest.mark.parametrize("values", [(-1, 1, 1), (2, 1, 3), (0, 2, 1)])
def test_a_backoff_that_cannot_be_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="floor_s <= base_s <= cap_s"):
        FullJitterBackoff(*values)


# -- rolling count -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5)), max_size=60))
def test_a_rolling_count_is_exact_to_a_twentieth_of_its_window(steps: list[tuple[float, int]]) -> None:
    window_s, now = 10.0, 100.0
    count = RollingCount(window_s)
    told: list[tuple[float, int]] = []
    for step, number in steps:
        now += step
        count.add(number, now)
        told.append((now, number))
        certainly = sum(n for at, n in told if at > now - window_s * 19 / 20 + 1e-6)
        at_most = sum(n for at, n in told if at > now - window_s - 1e-6)
        assert certainly <= count.total(now) <= at_most


# -- breaker -----------------------------------------------------------------------------------------------

SETTINGS = BreakerSettings(
    threshold=3,
    ratio=0.5,
    window_s=10,
    open_s=5,
    probes=2,
    ramp_s=4,
    ramp_initial_per_s=10,
    ramp_doubling_s=1,
)


def opened(at: float = 100, settings: BreakerSettings = SETTINGS) -> CircuitBreaker:
    breaker = CircuitBreaker(settings)
    for _ in range(settings.threshold):
        breaker.failed(at, at)
    assert breaker.state(at) is BreakerState.OPEN
    return breaker


def ramping(at: float = 105) -> CircuitBreaker:
    """It became half-open at this time, and its probes succeeded in no time."""
    breaker = opened(at - SETTINGS.open_s)
    for _ in range(SETTINGS.probes):
        assert breaker.admit(at)
    for _ in range(SETTINGS.probes):
        breaker.succeeded(at, at)
    assert breaker.state(at) is BreakerState.RAMP
    return breaker


def admitted(breaker: CircuitBreaker, now: float, tries: int = 10_000) -> int:
    return sum(breaker.admit(now) for _ in range(tries))


def test_failures_open_it_at_the_threshold() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(2):
        breaker.failed(1, 1)
        assert breaker.admit(1)
    breaker.failed(1, 1)
    assert breaker.state(1) is BreakerState.OPEN
    assert breaker.openings == 1
    assert not breaker.admit(1)


def test_failures_among_many_successes_do_not_open_it() -> None:
    breaker = CircuitBreaker(SETTINGS)
    breaker.succeeded(1, 1, count=4)
    for _ in range(3):
        breaker.failed(1, 1)
    assert breaker.state(1) is BreakerState.CLOSED
    breaker.failed(1, 1)
    assert breaker.state(1) is BreakerState.OPEN


def test_failures_long_apart_do_not_open_it() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for at in range(0, 100, 6):
        breaker.failed(at, at)
        assert breaker.state(at) is BreakerState.CLOSED


def test_open_it_admits_nothing_until_its_time_is_over_and_then_only_probes() -> None:
    breaker = opened(100)
    assert admitted(breaker, 104.99) == 0
    assert breaker.state(105) is BreakerState.HALF_OPEN
    assert admitted(breaker, 105) == 2
    assert admitted(breaker, 1_000) == 0


def test_a_probe_that_was_not_sent_makes_room_for_another() -> None:
    breaker = opened(100)
    assert admitted(breaker, 105) == 2
    breaker.released()
    assert admitted(breaker, 105) == 1


def test_a_probe_that_fails_opens_it_for_another_while() -> None:
    breaker = opened(100)
    assert breaker.admit(105)
    breaker.failed(105, 107)
    assert breaker.openings == 2
    assert admitted(breaker, 111.9) == 0
    assert admitted(breaker, 112) == 2


def test_probes_that_succeed_begin_a_ramp_that_ends_closed() -> None:
    breaker = ramping(105)
    assert admitted(breaker, 105) == 0
    # 10/s that double each second: 14.4 after one, 43.3 after two.
    assert admitted(breaker, 106) == 15
    assert admitted(breaker, 107) == 29
    assert breaker.state(108.99) is BreakerState.RAMP
    assert breaker.state(109) is BreakerState.CLOSED
    assert admitted(breaker, 109) == 10_000


def test_a_failure_on_the_ramp_opens_it() -> None:
    breaker = ramping(105)
    breaker.failed(105.5, 106)
    assert breaker.state(106) is BreakerState.OPEN


def test_without_a_ramp_the_probes_close_it() -> None:
    settings = BreakerSettings(threshold=1, probes=1, ramp_s=0)
    breaker = opened(100, settings)
    assert breaker.admit(105)
    breaker.succeeded(105, 105)
    assert breaker.state(105) is BreakerState.CLOSED


def test_what_was_sent_before_the_probes_says_nothing_about_now() -> None:
    breaker = opened(100)
    assert admitted(breaker, 105) == 2
    breaker.failed(99, 106)
    assert breaker.state(106) is BreakerState.HALF_OPEN
    breaker.succeeded(99, 106, count=5)
    assert breaker.state(106) is BreakerState.HALF_OPEN
    ramp = ramping(105)
    ramp.failed(99, 106)
    assert ramp.state(106) is BreakerState.RAMP
    for _ in range(10):
        ramp.failed(99, 120)
    assert ramp.state(120) is BreakerState.CLOSED


def test_after_all_that_it_can_open_again() -> None:
    breaker = ramping(105)
    assert breaker.state(200) is BreakerState.CLOSED
    for _ in range(3):
        breaker.failed(200, 200)
    assert breaker.state(200) is BreakerState.OPEN
    assert breaker.openings == 2


EVENTS = st.lists(
    st.tuples(st.floats(0, 3), st.sampled_from(["ask", "success", "failure", "old failure", "released"])),
    max_size=200,
)


@given(EVENTS)
def test_whatever_happens_an_open_breaker_admits_no_more_than_it_says(
    events: list[tuple[float, str]],
) -> None:
    breaker = CircuitBreaker(SETTINGS)
    now, opened_at = 100.0, None
    under_way: list[float] = []
    asked_in_ramp = 0
    for step, event in events:
        now += step
        before, openings = breaker.state(now), breaker.openings
        if before is not BreakerState.RAMP:
            asked_in_ramp = 0
        if event == "ask":
            is_admitted = breaker.admit(now)
            assert is_admitted or before is not BreakerState.CLOSED
            if before is BreakerState.OPEN:
                assert not is_admitted and opened_at is not None and now - opened_at < SETTINGS.open_s
            if is_admitted:
                under_way.append(now)
                asked_in_ramp += before is BreakerState.RAMP
            assert asked_in_ramp <= 10 * (2**SETTINGS.ramp_s) / 0.69
        elif event == "success" and under_way:
            breaker.succeeded(under_way.pop(), now)
        elif event == "failure" and under_way:
            breaker.failed(under_way.pop(), now)
        elif event == "old failure" and opened_at is not None:
            breaker.failed(opened_at - 1, now)
            assert breaker.openings == openings or before is BreakerState.CLOSED
        elif event == "released" and under_way:
            breaker.released()
            under_way.pop()
        if breaker.openings > openings:
            opened_at, under_way = now, []
    # However it got here, probes that succeed lead back to a closed breaker.
    now += SETTINGS.open_s
    for _ in range(100):
        if breaker.state(now) is BreakerState.HALF_OPEN and breaker.admit(now):
            breaker.succeeded(now, now)
        elif breaker.state(now) is BreakerState.HALF_OPEN:
            breaker.released()
    assert breaker.state(now + SETTINGS.ramp_s) is BreakerState.CLOSED


@pytest.mark.parametrize(
    "values",
    [
        {"threshold": 0},
        {"probes": 0},
        {"ratio": 0},
        {"ratio": 1.1},
        {"open_s": 0},
        {"window_s": 0},
        {"ramp_s": -1},
        {"ramp_initial_per_s": 0},
        {"ramp_doubling_s": 0},
    ],
)
def test_breaker_settings_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a breaker needs"):
        BreakerSettings(**values)  # type: ignore[arg-type]


# -- throttle ----------------------------------------------------------------------------------------------


def throttle() -> AdaptiveThrottle:
    return AdaptiveThrottle(ThrottleSettings(multiplier=2, window_s=10), Random(1))


def test_nothing_is_dropped_while_half_of_the_requests_are_accepted() -> None:
    limiter = throttle()
    for request in range(1_000):
        assert limiter.admit(1)
        if request % 2 == 0:
            limiter.accepted(1, 1)


def test_the_probability_is_that_of_the_book() -> None:
    limiter = throttle()
    for _ in range(9):
        limiter.admit(1)
    limiter.accepted(2, 1)
    assert limiter.drop_probability(1) == (9 - 2 * 2) / (9 + 1)


def test_a_cluster_that_takes_nothing_is_left_alone_but_for_a_few() -> None:
    limiter = throttle()
    passed = sum(limiter.admit(1) for _ in range(10_000))
    assert 1 <= passed < 30


def test_it_forgets_after_its_window() -> None:
    limiter = throttle()
    for _ in range(1_000):
        limiter.admit(1)
    assert limiter.drop_probability(2) > 0.9
    assert limiter.drop_probability(12) == 0


def test_throttle_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="multiplier >= 1"):
        ThrottleSettings(multiplier=0.5)


# -- retries -----------------------------------------------------------------------------------------------


def rule(error_class: ErrorClass, written: Written, *, is_of_batch: bool = False) -> ErrorRule:
    return ErrorRule("NAME", error_class, written, "", is_of_batch)


@given(
    error_class=st.sampled_from(ErrorClass),
    written=st.sampled_from(Written),
    is_of_batch=st.booleans(),
    is_keyed=st.booleans(),
    attempts=st.integers(1, 6),
)
def test_the_default_policy_neither_duplicates_nor_reorders(
    error_class: ErrorClass, written: Written, is_of_batch: bool, is_keyed: bool, attempts: int
) -> None:
    wants = RetryPolicy(max_attempts=5).wants(
        rule(error_class, written, is_of_batch=is_of_batch), attempts, is_keyed
    )
    if wants:
        assert written is Written.NO and not is_keyed and attempts < 5
        assert error_class is ErrorClass.TRANSIENT or (
            error_class is ErrorClass.RECORD and is_of_batch and attempts == 1
        )
    elif error_class is ErrorClass.TRANSIENT and written is Written.NO and not is_keyed:
        assert attempts >= 5


def test_who_asks_for_it_gets_the_other_retries() -> None:
    timed_out = rule(ErrorClass.TRANSIENT, Written.MAYBE)
    assert RetryPolicy(possibly_written=True).wants(timed_out, 1, is_keyed=False)
    assert not RetryPolicy(possibly_written=True).wants(timed_out, 1, is_keyed=True)
    assert RetryPolicy(possibly_written=True, keyed=True).wants(timed_out, 1, is_keyed=True)
    written = rule(ErrorClass.TRANSIENT, Written.YES)
    assert not RetryPolicy(possibly_written=True, keyed=True).wants(written, 1, is_keyed=False)
    fatal = rule(ErrorClass.FATAL, Written.NO)
    assert not RetryPolicy(possibly_written=True, keyed=True).wants(fatal, 1, is_keyed=False)


def test_a_retry_policy_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        RetryPolicy(max_attempts=0)
    with pytest.raises(ValueError, match="attempt_timeout_ms"):
        RetryPolicy(attempt_timeout_ms=0)
