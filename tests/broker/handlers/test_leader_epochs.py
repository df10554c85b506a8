"""OffsetForLeaderEpoch: nobody is told that its position is gone by a leader of yesterday."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.asking import ask
from tests.broker.world import World, running


def epoch_end(world: World, node_id: int, leader_epoch: int) -> EpochEndOffset:
    current = world.replica(node_id, "foo").leader_epoch
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
    body = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="foo", partitions=[wanted])])
    answer = ask(world, node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body, OffsetForLeaderEpochResponse)
    return answer.topics[0].partitions[0]


def test_a_leader_that_is_cut_off_does_not_deny_the_epoch_of_its_successor() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        old = world.leader("foo")
        others = [node_id for node_id in world.ids if node_id != old]
        world.network.partition([f"n{old}"], [f"n{other}" for other in others])
        world.wait(lambda: any(world.replica(other, "foo").is_serving for other in others))
        assert world.replica(old, "foo").is_serving, "it does not know yet"
        (successor,) = [other for other in others if world.replica(other, "foo").is_serving]
        epoch = world.replica(successor, "foo").leader_epoch
        assert epoch_end(world, old, epoch).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        end = epoch_end(world, successor, epoch)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, epoch, 1)
