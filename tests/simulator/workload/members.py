"""Groups: members that share partitions out among themselves and commit how far they have come (the classic protocol),
somebody who commits from outside, and an auditor who fetches what all of them have committed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.schema import Message
from tests.simulator.client import Client, Connection
from tests.simulator.oracle import Oracle
from tests.simulator.workload.group_requests import COORDINATOR_RETRIABLE, Place, commit, fetch
from tests.simulator.workload.plan import GroupPlan
from tests.simulator.workload.retry import RETRY_S

M = TypeVar("M", bound=Message)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 3
#: Below the time after which a client gives up on an answer: JoinGroup waits for so long.
REBALANCE_TIMEOUT_MS = 1000
MEAN_PAUSE_S = 0.1
#: After which a member ends its life, on average: it leaves, or is not heard of any more.
MEAN_LIFE_S = 2.0
#: How long it is away then, on average.
MEAN_ABSENCE_S = 0.3
AUDIT_PAUSE_S = 0.2
#: What ends a generation for a member, and not the member.
JOIN_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@dataclass
class Group:
    """What the members of one group have in common."""

    plan: GroupPlan
    places: list[Place]
    #: The highest offset of each place that was acknowledged.
    acknowledged: dict[Place, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return all(self.acknowledged.get(place, -1) >= self.plan.commits for place in self.places)

    def due(self, places: Iterable[Place]) -> list[Place]:
        """Those where something is left to be done, or all. A partition may be added when the others are far ahead, and
        its turn must not come by chance alone."""
        of_all = sorted(places)
        return [place for place in of_all if self.acknowledged.get(place, -1) < self.plan.commits] or of_all


class RefusedError(Exception):
    """The coordinator says no."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class Member:
    """A consumer, one life after the other, until its group has done its work."""

    def __init__(self, client: Client, oracle: Oracle, group: Group, name: str, seed: int) -> None:
        self._client = client
        self._oracle = oracle
        self._group = group
        self._name = name
        self._rng = random.Random(seed)
        self._member_id = ""
        self._generation = -1
        self._met = ""

    def describe(self) -> str:
        return f"{self._name} as {self._member_id or 'nobody'}: {self._met}, {self._group.acknowledged}"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._group.is_done:
            ends_s = loop.time() + self._rng.expovariate(1 / MEAN_LIFE_S)
            while loop.time() < ends_s and not self._group.is_done:
                await self._try_generation(ends_s)
                await asyncio.sleep(RETRY_S)
            if self._rng.random() < 0.5:
                await self._try_to_leave()
            self._member_id = ""
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_ABSENCE_S))

    async def _try_generation(self, ends_s: float) -> None:
        """Join, work until something happens. What ends badly shows in who this is afterwards."""
        try:
            await self._live(ends_s)
        except RefusedError as refused:
            self._met = str(refused)
            if refused.code in COORDINATOR_RETRIABLE:
                self._client.forget_coordinator(self._group.plan.name)
            elif refused.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            else:
                assert refused.code in JOIN_AGAIN or refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (
                    refused.code
                )
        except (OSError, TimeoutError) as error:
            # A commit that is under way may arrive late, and after one of the same member that came later. So this
            # one is not heard of any more, and somebody else joins.
            self._met = repr(error)
            self._member_id = ""
            self._client.forget_coordinator(self._group.plan.name)

    async def _live(self, ends_s: float) -> None:
        places = await self._join()
        code, offsets = await fetch(await self._coordinator(), self._oracle, self._group.plan.name, places)
        if code is not ErrorCode.NONE:
            raise RefusedError(code)
        while asyncio.get_running_loop().time() < ends_s and not self._group.is_done:
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_PAUSE_S))
            if places and self._rng.random() < 0.7:
                await self._commit(offsets)
            else:
                await self._heartbeat()

    async def _join(self) -> list[Place]:
        """Returns what this member owns in the generation."""
        name = self._group.plan.name
        joined = await self._ask(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_request(), JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._ask(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_request(), JoinGroupResponse)
        _check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            members = [member.member_id for member in joined.members]
            self._rng.shuffle(members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=json.dumps(self._group.places[number :: len(members)]).encode(),
                )
                for number, member_id in enumerate(members)
            ]
        body = SyncGroupRequest(
            group_id=name,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )
        synced = await self._ask(ApiKey.SYNC_GROUP, SYNC_VERSION, body, SyncGroupResponse)
        _check(synced.error_code)
        places = [(topic, partition) for topic, partition in json.loads(synced.assignment)]
        for topic, partition in places:
            self._oracle.owners.owns(name, self._generation, topic, partition, self._member_id)
        return places

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group.plan.name,
            session_timeout_ms=self._group.plan.session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="simulated",
            protocols=[JoinGroupRequestProtocol(name="each its own", metadata=b"")],
        )

    async def _commit(self, offsets: dict[Place, int]) -> None:
        place = self._rng.choice(self._group.due(offsets))
        following = offsets[place] + self._rng.randint(1, 3)
        offsets[place] = following
        code = await commit(
            await self._coordinator(),
            self._oracle,
            self._group.plan.name,
            {place: following},
            member_id=self._member_id,
            generation=self._generation,
        )
        _check(code)
        acknowledged = self._group.acknowledged
        acknowledged[place] = max(acknowledged.get(place, -1), following)

    async def _heartbeat(self) -> None:
        body = HeartbeatRequest(
            group_id=self._group.plan.name, generation_id=self._generation, member_id=self._member_id
        )
        answer = await self._ask(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, body, HeartbeatResponse)
        _check(answer.error_code)

    async def _try_to_leave(self) -> None:
        body = LeaveGroupRequest(
            group_id=self._group.plan.name, members=[MemberIdentity(member_id=self._member_id)]
        )
        try:
            await self._ask(ApiKey.LEAVE_GROUP, LEAVE_VERSION, body, LeaveGroupResponse)
        except (OSError, TimeoutError, RefusedError) as error:
            self._met = repr(error)
            self._client.forget_coordinator(self._group.plan.name)

    async def _ask(self, key: ApiKey, version: int, body: Message, response: type[M]) -> M:
        return await (await self._coordinator()).request(key, version, body, response)

    async def _coordinator(self) -> Connection:
        connection = await self._client.coordinator(self._group.plan.name)
        if connection is None:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return connection


class Committer:
    """Commits from outside, as who assigns partitions to itself does: one offset after the other. Where nobody knows
    what became of a commit it goes on under another name, because that one may still arrive."""

    def __init__(
        self, client: Client, oracle: Oracle, name: str, plan: GroupPlan, place: Place, seed: int
    ) -> None:
        self._client = client
        self._oracle = oracle
        self._name = name
        self._plan = plan
        self._place = place
        self._rng = random.Random(seed)
        self._names = 0
        self._met = ""

    def describe(self) -> str:
        return f"{self._name}-{self._names}: {self._met}"

    async def run(self) -> None:
        offset = 0
        while offset < self._plan.commits:
            name = f"{self._name}-{self._names}"
            try:
                connection = await self._client.coordinator(name)
                if connection is not None:
                    offset += self._rng.randint(1, 3)
                    code = await commit(connection, self._oracle, name, {self._place: offset})
                    self._met = code.name
                    assert code in COORDINATOR_RETRIABLE or code in (
                        ErrorCode.NONE,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ), code
                    if code is not ErrorCode.NONE:
                        self._client.forget_coordinator(name)
            except (OSError, TimeoutError) as error:
                self._met = repr(error)
                self._client.forget_coordinator(name)
                self._names += 1
            await asyncio.sleep(RETRY_S + self._rng.expovariate(1 / MEAN_PAUSE_S))


class Auditor:
    """Fetches what anybody has committed, for ever."""

    def __init__(self, client: Client, oracle: Oracle, seed: int) -> None:
        self._client = client
        self._oracle = oracle
        self._rng = random.Random(seed)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / AUDIT_PAUSE_S))
            places = self._oracle.offsets.places
            if not places:
                continue
            group, topic, partition = self._rng.choice(places)
            try:
                connection = await self._client.coordinator(group)
                if connection is None:
                    continue
                code, _ = await fetch(connection, self._oracle, group, [(topic, partition)])
                if code is not ErrorCode.NONE:
                    assert code in COORDINATOR_RETRIABLE, code
                    self._client.forget_coordinator(group)
            except (OSError, TimeoutError):
                self._client.forget_coordinator(group)


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise RefusedError(code)
