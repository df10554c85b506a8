"""ListOffsets of a leader that does not know yet how much is committed (replication.md section 6)."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.asking import ask
from tests.broker.world import running


@pytest.mark.parametrize(
    ("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_leader_that_is_not_established_has_the_client_ask_again(version: int, expected: ErrorCode) -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        world.kill(world.leader("foo"))
        winners: list[int] = []

        def is_elected() -> bool:
            winners[:] = [x for x in world.nodes if world.replica(x, "foo").is_leader]
            return bool(winners)

        world.wait(is_elected)
        (winner,) = winners
        for other in world.nodes:
            if other != winner:
                world.network.cut(f"n{winner}", f"n{other}")
        assert not world.replica(winner, "foo").is_serving
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        body = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="foo", partitions=[wanted])])
        answer = ask(world, winner, ApiKey.LIST_OFFSETS, version, body, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == expected
