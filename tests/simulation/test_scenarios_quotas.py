"""Quotas as a story of a whole cluster: they hold with the next leader and the next controller, and lose nothing."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from tests.broker.asking import connect
from tests.broker.serving.test_quotas import SIM, alter, described, produce_request, run
from tests.broker.world import World, running

RATE = 2000
BATCH_BYTES = 1500
SECONDS = 8


async def produce_for(world: World, node_id: int, seconds: float) -> tuple[int, float]:
    """One batch after the other, as fast as the node listens: how many were acknowledged, and when all are paid for."""
    connection = await connect(world, node_id)
    until_s = world.loop.time() + seconds
    acknowledged = 0
    throttle_ms = 0
    while world.loop.time() < until_s:
        body = produce_request(BATCH_BYTES)
        answer = await connection.request(ApiKey.PRODUCE, 11, body, ProduceResponse)
        acknowledged += answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        throttle_ms = answer.throttle_time_ms
    return acknowledged, world.loop.time() + throttle_ms / 1000


def test_a_quota_is_kept_to_by_the_next_leader_and_no_acknowledged_record_is_lost() -> None:
    with running(settings={"quota.window.num": "2"}) as world:
        world.create_topic("foo")
        alter(world, SIM, producer_byte_rate=float(RATE))
        acknowledged = 0
        for _ in range(2):
            leader = world.leader("foo")
            began_s = world.loop.time()
            count, paid_s = run(world, produce_for(world, leader, SECONDS))
            # A second's worth was saved at first; every node counts for itself.
            assert count * BATCH_BYTES <= RATE * (paid_s - began_s + 1)
            assert count * BATCH_BYTES >= RATE * SECONDS * 0.8, "the limit is no less than what it says"
            acknowledged += count
            world.kill(leader)
            successor = world.leader("foo")
            world.start(leader)
            world.wait_ready(leader)
        world.wait(lambda: world.nodes[successor].leaders.controller_id() > 0)
        assert world.replica(successor, "foo").high_watermark >= acknowledged
        assert described(world, successor) == [(SIM, {"producer_byte_rate": float(RATE)})]
