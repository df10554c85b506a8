"""No well-formed request, whatever its values, may end a node, stay without an answer, disturb other clients, or cause
a record that cannot be loaded again."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.handlers.hostile.attack import run_attack
from tests.broker.handlers.hostile.requests import (
    LONGEST,
    NOT_UTF8,
    HostileRequest,
    any_request,
    every_request,
)

REQUESTS = st.lists(st.tuples(st.integers(1, 3), any_request()), min_size=1, max_size=20)
SETTINGS = settings(suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize(
    "text", ["", "x" * LONGEST, "\0", NOT_UTF8, "1"], ids=["empty", "longest", "nul", "no utf8", "number"]
)
def test_no_version_of_any_request_harms_a_cluster(text: str, seed: int) -> None:
    rng = random.Random(seed)
    run_attack((rng.randint(1, 3), request) for request in every_request(rng, text))


@settings(SETTINGS, max_examples=15)
@given(REQUESTS)
def test_no_sequence_of_requests_harms_a_cluster(requests: list[tuple[int, HostileRequest]]) -> None:
    run_attack(requests)


@pytest.mark.slow
@settings(SETTINGS, max_examples=2000)
@given(REQUESTS)
def test_no_long_sequence_of_requests_harms_a_cluster(requests: list[tuple[int, HostileRequest]]) -> None:
    run_attack(requests)
