"""What nodes show of comparisons of replicas."""

from __future__ import annotations

from broker.metadata.ids import METADATA_TOPIC_NAME
from tests.broker.admin_http.http_client import SETTINGS
from tests.broker.metrics.scrape import scrape
from tests.broker.verification.changed import change_bytes
from tests.broker.verification.comparing import create, verify
from tests.broker.world import running

NOT_IN_BACKGROUND = {"varve.verify.interval.ms": "0"}
MISMATCHES, COMPARISONS = "varve_replica_mismatches_total", "varve_replica_comparisons_total"


def test_a_replica_that_differs_is_counted_by_the_leader() -> None:
    with running(settings=SETTINGS | NOT_IN_BACKGROUND) as world:
        leader, others = create(world)
        world.produce("table", b"value", key=b"k")
        world.wait_equal("table")
        verify(world, leader)
        before = scrape(world, leader)
        assert before(MISMATCHES, topic="table", partition="0") == 0, "so that its first rise is seen"
        change_bytes(world, others[0], "table", 0, b"value", b"other")
        verify(world, leader)
        after = scrape(world, leader)
        assert after(MISMATCHES, topic="table", partition="0") == 1
        assert after(COMPARISONS, result="equal") == after(COMPARISONS, result="different") == 1
        assert after(COMPARISONS, result="incomplete") == after(COMPARISONS, result="failed") == 0
        for other in others:
            assert not scrape(world, other).all(MISMATCHES, topic="table"), "it does not lead"
        shown = [scrape(world, node_id).all(MISMATCHES, topic=METADATA_TOPIC_NAME) for node_id in world.ids]
        assert sum(map(len, shown)) == 1
