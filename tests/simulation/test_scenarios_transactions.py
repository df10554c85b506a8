"""Stories of transactions that went wrong elsewhere, each on the whole cluster and under the eyes of its oracle."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.simulator.cluster import SimulatedCluster, captured_logs
from tests.simulator.mutations import transaction_stories as stories
from tests.simulator.mutations.stage import Stage, tell


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "story",
    [
        stories.a_batch_comes_when_its_transaction_has_ended,
        stories.a_transaction_ends_while_a_partition_is_verified,
        stories.an_end_comes_when_the_next_transaction_has_begun,
        stories.an_end_comes_when_its_coordinator_leads_again,
        stories.a_leader_is_deposed_when_it_has_appended_a_marker,
        stories.a_stale_coordinator_is_asked,
        stories.a_stale_coordinator_consents,
        stories.a_coordinator_dies_in_a_transaction,
        stories.leaders_change_while_a_transaction_is_committed,
        stories.a_coordinator_is_cut_off_when_it_is_to_commit,
        stories.markers_of_an_old_coordinator_come_late,
        stories.a_marker_comes_behind_its_copy,
    ],
)
def test_transactions_neither_hang_nor_lie(story: Callable[[Stage], None], seed: int) -> None:
    rng = random.Random(seed)
    cluster = SimulatedCluster(rng)
    with captured_logs(cluster.loop):
        tell(cluster, rng, story)
        cluster.oracle.transactions.check_all_ended(cluster.hosted())
    cluster.close()
