"""A slice of `scripts/hostile`: short attacks and some requests of the fuzzer against real nodes, and the decoders."""

from __future__ import annotations

import random
from pathlib import Path

from tests.hostile.decoders import all_checks, run_random
from tests.hostile.target import Address, discover
from tests.hostile.trial import Trial
from tests.integration.harness import BrokerCluster

#: Those that are done within a few seconds.
SHORT_ATTACKS = ["frame-sizes", "fetch-sessions", "poison"]


def test_decoders_give_a_value_or_an_error_of_ours() -> None:
    run_random(2000, seed=random.SystemRandom().getrandbits(31))


def test_what_is_valid_is_decoded() -> None:
    """Otherwise the changes of valid messages say little."""
    rng = random.Random(1)
    for check in all_checks():
        check.run(memoryview(check.valid(rng)))


def test_nodes_stand_short_attacks_and_odd_requests(tmp_path: Path) -> None:
    # Beside other tests the machine itself holds a leader up for longer than the usual 1000 ms, which scripts/hostile
    # keeps to.
    cluster = BrokerCluster(tmp_path / "cluster", varve__election__timeout__ms="5000")
    try:
        cluster.start()
        target = discover(Address("localhost", cluster[1].port), None)
        outcome = Trial(target, tmp_path, print, rest_s=1, is_measured=False).run(SHORT_ATTACKS, 300, seed=1)
        assert [row.name for row in outcome.rows] == ["at rest", *SHORT_ATTACKS, "fuzz"]
        assert outcome.acknowledged
        assert outcome.missing == 0
        assert [problem for row in outcome.rows for problem in row.problems] == []
        assert next(iter(outcome.rows)).observed.memory_mb
    finally:
        cluster.close()
