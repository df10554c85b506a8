"""Requests of classic group members to the nodes of a `World`. Each request is a task, because some are parked."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.schema import Message
from tests.broker.asking import begin_ask
from tests.broker.world import World

R = TypeVar("R", bound=Message)


class GroupClient:
    """Sends requests about one group to one node. `result` waits for an answer."""

    def __init__(self, world: World, node_id: int, group_id: str = "g") -> None:
        self.world = world
        self.node_id = node_id
        self.group_id = group_id

    def put(self, key: ApiKey, version: int, body: Message, response: type[R]) -> asyncio.Task[R]:
        return begin_ask(self.world, self.node_id, key, version, body, response)

    def result(self, task: asyncio.Task[R]) -> R:
        self.world.wait(task.done)
        return task.result()

    def put_join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
    ) -> asyncio.Task[JoinGroupResponse]:
        body = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.put(ApiKey.JOIN_GROUP, version, body, JoinGroupResponse)

    def put_sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
        instance: str | None = None,
    ) -> asyncio.Task[SyncGroupResponse]:
        body = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        return self.put(ApiKey.SYNC_GROUP, version, body, SyncGroupResponse)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        body = HeartbeatRequest(
            group_id=self.group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.result(self.put(ApiKey.HEARTBEAT, 4, body, HeartbeatResponse)).error_code

    def leave(
        self, *members: tuple[str, str | None], version: int = 5
    ) -> tuple[int, list[tuple[str, str | None, int]]]:
        """(error, [(member id, instance id, error)])"""
        if version < 3:
            body = LeaveGroupRequest(group_id=self.group_id, member_id=members[0][0])
        else:
            leaving = [MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members]
            body = LeaveGroupRequest(group_id=self.group_id, members=leaving)
        answer = self.result(self.put(ApiKey.LEAVE_GROUP, version, body, LeaveGroupResponse))
        return answer.error_code, [(x.member_id, x.group_instance_id, x.error_code) for x in answer.members]

    def describe(self, version: int = 6, *, with_operations: bool = False) -> DescribedGroup:
        body = DescribeGroupsRequest(groups=[self.group_id], include_authorized_operations=with_operations)
        answer = self.result(self.put(ApiKey.DESCRIBE_GROUPS, version, body, DescribeGroupsResponse))
        return answer.groups[0]

    def new_id(self) -> str:
        return self.result(self.put_join()).member_id

    def stable(self, count: int) -> tuple[list[str], int]:
        """Makes a generation of this many members, each with the assignment "for MEMBER_ID". Returns the member ids,
        the leader first, and the generation. group.initial.rebalance.delay.ms must be long enough for all to join."""
        member_ids = [self.new_id() for _ in range(count)]
        joins = [self.put_join(member_id) for member_id in member_ids]
        answers = [self.result(join) for join in joins]
        (generation,) = {answer.generation_id for answer in answers}
        (leader,) = {answer.leader for answer in answers}
        member_ids.sort(key=lambda member_id: member_id != leader)
        assignments = {member_id: f"for {member_id}".encode() for member_id in member_ids}
        syncs = [
            self.put_sync(member_id, generation, assignments if member_id == leader else None)
            for member_id in member_ids
        ]
        for member_id, sync in zip(member_ids, syncs, strict=True):
            assert self.result(sync).assignment == assignments[member_id]
        return member_ids, generation
