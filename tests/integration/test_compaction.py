"""Compacted topics, as clients see them, with the processes that compact them."""

from __future__ import annotations

import random

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import eventually
from tests.integration.tables import LIMIT_S, Filler, cluster_with_table, read_table, write


def test_of_each_key_the_last_record_is_left_and_deletions_go(make_cluster: ClusterFactory) -> None:
    cluster = cluster_with_table(make_cluster)
    rng = random.Random(1)
    pairs = [(b"k%d" % rng.randrange(50), rng.choice([None, b"v%d" % number * 30])) for number in range(3000)]
    write(cluster, *pairs)
    table = {key: value for key, value in dict(pairs).items() if value is not None}
    fill = Filler(cluster)

    def is_compacted() -> bool | None:
        fill()
        values, records, deletions = read_table(cluster)
        assert values.pop(b"filler") is not None
        assert values == table
        return True if deletions == 0 and records < len(table) + 20 else None

    eventually(is_compacted, "only the last records are left", LIMIT_S)


def test_after_a_restart_a_deletion_goes_although_nobody_writes(make_cluster: ClusterFactory) -> None:
    cluster = cluster_with_table(make_cluster, delete_retention_ms="5000")
    write(cluster, (b"other", b"V"), (b"k", b"V"), (b"k", None))

    def has_horizon() -> bool | None:
        """Each replica has the two records that a first pass leaves, and nothing is dirty."""
        logs = [broker.log_text() for broker in cluster.brokers.values()]
        return True if all("records_after=2" in log for log in logs) else None

    eventually(has_horizon, "the first pass", LIMIT_S)
    cluster.kill(*cluster.brokers)
    cluster.start(*cluster.brokers)
    cluster.wait_ready()
    assert read_table(cluster) == ({b"other": b"V"}, 2, 1)
    eventually(lambda: read_table(cluster)[1:] == (1, 0) or None, "the deletion goes", LIMIT_S)
