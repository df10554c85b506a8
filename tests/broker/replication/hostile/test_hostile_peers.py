"""Nothing that another node says ends a node, keeps it from starting again, or costs what was acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.broker.replication.hostile.attack import STATES, Lie, attacked
from tests.broker.replication.hostile.lies import KINDS

FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=150)

lies = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.integers(0, 2**64 - 1)), min_size=20, max_size=60
)


def _attack(state: str, told: list[Lie], *, may_decide: bool) -> None:
    with attacked(state, may_decide=may_decide) as attack, capture_logs() as logged:
        attack.run(told)
        attack.survived()
        closed = [line for line in logged if line["event"] == "peer connection closed: bad message"]
        assert len(closed) <= attack.connections, "one line for each connection"
        assert [line for line in logged if line["log_level"] == "critical"] == []


@pytest.mark.parametrize("state", STATES)
@FEW
@given(told=lies)
def test_whatever_a_node_says_nothing_acknowledged_is_lost(state: str, told: list[Lie]) -> None:
    _attack(state, told, may_decide=False)


@pytest.mark.parametrize("state", STATES)
@FEW
@given(told=lies)
def test_whatever_a_node_decides_all_nodes_live_and_serve(state: str, told: list[Lie]) -> None:
    """A leader may raise the log start, or have a follower begin anew. If it lies, records are gone, and no node is."""
    _attack(state, told, may_decide=True)


@pytest.mark.slow
@pytest.mark.parametrize("may_decide", [False, True])
@pytest.mark.parametrize("state", STATES)
@MANY
@given(told=lies)
def test_many_lies(state: str, may_decide: bool, told: list[Lie]) -> None:
    _attack(state, told, may_decide=may_decide)
