"""What a group's coordinator may answer, and when (replication.md section 9; broker/groups/README.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from broker.config.node_config import NodeConfig
from broker.coordinator.decisions import Decisions
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.outcome import Outcome
from broker.coordinator.reading import Reading
from broker.groups.classic_group import ClassicGroup
from broker.groups.consumer_state import ConsumerGroupState
from broker.groups.records import GroupRecord
from broker.groups.shard import Shard
from broker.scheduling.background import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import off
from tests.simulator.workload.group_requests import commit, fetch

GROUP = "g"
GroupDecisions: TypeAlias = Decisions[Shard, GroupRecord]


def _at_once(apply: Callable[..., None]) -> object:
    def applying(self: GroupDecisions, led: LedPartition[Shard], outcome: Outcome[GroupRecord]) -> None:
        apply(self, led, Outcome(outcome.records))
        self.give_answers(led, outcome.answers)

    return applying


def _when_applied(apply: Callable[..., Steps]) -> object:
    def applying(self: GroupDecisions, led: LedPartition[Shard], outcome: Outcome[GroupRecord]) -> Steps:
        yield from apply(self, led, Outcome(outcome.records))
        self.give_answers(led, outcome.answers)

    return applying


def _without_a_round(_: object) -> object:
    def confirm(self: Reading[Shard], done: Callable[[], None]) -> None:
        done()

    return confirm


def a_stale_coordinator_is_asked(stage: Stage) -> None:
    """It is cut off, a successor takes a commit, and the old one does not know it yet."""
    stage.create_topic()
    old = _commit_somewhere(stage, stage.cluster.node_ids, 1)
    stage.run_for(stage.rng.uniform(0, 0.3))
    stage.isolate(old)
    _commit_somewhere(stage, [node_id for node_id in stage.cluster.node_ids if node_id != old], 2)
    stage.run_for(stage.rng.uniform(0, 0.05))
    with suppress(TimeoutError, OSError):
        stage.run(_fetching(stage, old))


def _commit_somewhere(stage: Stage, node_ids: list[int], offset: int) -> int:
    """Until one of them takes it: the group's coordinator."""
    while True:
        for node_id in node_ids:
            with suppress(TimeoutError, OSError):
                if stage.run(_committing(stage, node_id, offset)) is ErrorCode.NONE:
                    return node_id
        stage.run_for(0.02)


async def _committing(stage: Stage, node_id: int, offset: int) -> ErrorCode:
    connection = await stage.connection(node_id)
    body = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    # Who is asked first has the topic of offsets created.
    await connection.request(ApiKey.FIND_COORDINATOR, 4, body, FindCoordinatorResponse)
    return await commit(connection, stage.cluster.oracle, GROUP, {(stage.topic, 0): offset})


async def _fetching(stage: Stage, node_id: int) -> None:
    connection = await stage.connection(node_id)
    await fetch(connection, stage.cluster.oracle, GROUP, [(stage.topic, 0)])


def a_stale_coordinator_hears_a_member(stage: Stage) -> None:
    """It is cut off, and its successor gives the member's partition to another one."""
    stage.create_topic()
    session_s = stage.cluster.config_of(1).consumer_session_timeout_ms / 1000
    first, second = _Member(stage, "first"), _Member(stage, "second")
    old = _join_somewhere(stage, first, stage.cluster.node_ids)
    stage.run_for(stage.rng.uniform(0, 0.3))
    stage.disconnect(old)
    heard = True
    while not second.has_partition:
        heard = heard and stage.run(first.heartbeat(old))
        if second.epoch == 0:
            _join_somewhere(stage, second, [x for x in stage.cluster.node_ids if x != old])
        else:
            stage.run(second.heartbeat(second.coordinator))
        stage.run_for(0.01)
    assert stage.loop.time() >= first.heard_s + session_s, "the first member's session is not over"


class _Member:
    """Of a group of the consumer protocol, with one partition to be had."""

    def __init__(self, stage: Stage, member_id: str) -> None:
        self._stage = stage
        self._member_id = member_id
        self.epoch = 0
        self.has_partition = False
        #: When it sent the last heartbeat that was accepted, and to which node.
        self.heard_s = 0.0
        self.coordinator = 0

    async def heartbeat(self, node_id: int) -> bool:
        """Whether it is accepted."""
        sent_s = self._stage.loop.time()
        joins = self.epoch == 0
        body = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=5000 if joins else -1,
            subscribed_topic_names=[self._stage.topic] if joins else None,
            topic_partitions=[] if joins else None,
        )
        try:
            connection = await self._stage.connection(node_id)
            found = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            # Who is asked first has the topic of offsets created.
            await connection.request(ApiKey.FIND_COORDINATOR, 4, found, FindCoordinatorResponse)
            answer = await connection.request(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body, ConsumerGroupHeartbeatResponse
            )
        except (TimeoutError, OSError):
            return False
        if answer.error_code != ErrorCode.NONE:
            return False
        self.epoch, self.heard_s, self.coordinator = answer.member_epoch, sent_s, node_id
        self.has_partition |= answer.assignment is not None and bool(answer.assignment.topic_partitions)
        return True


def _join_somewhere(stage: Stage, member: _Member, node_ids: list[int]) -> int:
    """Until one of them accepts it: the group's coordinator."""
    while True:
        for node_id in node_ids:
            if stage.run(member.heartbeat(node_id)):
                return node_id
        stage.run_for(0.02)


MUTATIONS = (
    Mutation(
        "group-answers-committed",
        "A coordinator's answer leaves when the log end that it saw is committed (section 9)",
        off((Decisions, "apply", _at_once), (Decisions, "_apply", _when_applied)),
        mix=("isolate", "partition", "kill"),
        has_groups=True,
    ),
    Mutation(
        "group-reads-confirmed",
        "What a coordinator tells without a record waits for a liveness round (sections 6 and 9)",
        off((Reading, "confirm", _without_a_round)),
        story=a_stale_coordinator_is_asked,
    ),
    Mutation(
        "group-revokes-first",
        "A partition that somebody has is nobody else's until it was given up (KIP-848)",
        off((ConsumerGroupState, "owner", lambda _: lambda *arguments: None)),
        mix=("client cut", "stall", "pause"),
        has_groups=True,
    ),
    Mutation(
        "sessions-outlive-a-stale-coordinator",
        "After a fail-over, sessions begin when the coordinator before cannot have answered a heartbeat any more",
        off((NodeConfig, "stale_leader_ms", lambda _: property(lambda config: 0))),
        story=a_stale_coordinator_hears_a_member,
    ),
    Mutation(
        "group-generation-fences",
        "A commit of a generation that has ended, or of somebody who is no member any more, is refused (KIP-62)",
        off((ClassicGroup, "check_commit", lambda _: lambda *arguments: None)),
        mix=("client cut", "stall", "pause"),
        has_groups=True,
        is_slow=True,
    ),
)
