"""Drives a classic group as the coordinator does, with a log that commits every `Outcome` at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from broker.coordinator.outcome import Outcome
from broker.groups.classic_group import ClassicGroup
from broker.groups.classic_messages import JoinAnswer, JoinRequest, Leaver, SyncRequest
from broker.groups.classic_rebalance import ClassicLimits, pending_size
from broker.groups.commit import CommitRequest
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.tickets import AnyTicket, decided, new_ticket

RANGE = (("range", b"r"),)
SESSION_S = 10.0
#: How long the coordinator before may have answered heartbeats after this one was elected.
STALE_LEADER_S = 2.0
REBALANCE_S = 60.0


class Driver:
    """`answers` holds the answers by ticket, `open` the tickets that wait. Every request returns its ticket."""

    def __init__(self, *, initial_delay_s: float = 3.0, max_members: int = 1000) -> None:
        self.limits = ClassicLimits(initial_delay_s, max_members)
        self._rng = random.Random(1)
        self.group = ClassicGroup("g", self.limits, self._rng)
        self.log: list[GroupRecord] = []
        self.now = 1000.0
        self.answers: dict[AnyTicket, Any] = {}
        self.open: set[AnyTicket] = set()

    # -- requests -------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        rebalance_s: float = REBALANCE_S,
        session_s: float = SESSION_S,
        version: int = 9,
        client_id: str = "c",
    ) -> AnyTicket:
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=int(session_s * 1000),
            rebalance_timeout_ms=int(rebalance_s * 1000),
            protocol_type=protocol_type,
            protocols=protocols,
            takes_id_first=version >= 4,
            may_skip_assignment=version >= 9,
        )
        return self._ask(lambda ticket: self.group.join(ticket, request, self.now, self.now_ms))

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        protocol: str | None = None,
    ) -> AnyTicket:
        request = SyncRequest(
            member_id=member_id,
            instance_id=instance,
            generation_id=self.group.generation_id if generation is None else generation,
            protocol=protocol,
            assignments=assignments or {},
        )
        return self._ask(lambda ticket: self.group.sync(ticket, request, self.now, self.now_ms))

    def heartbeat(
        self, member_id: str, *, instance: str | None = None, generation: int | None = None
    ) -> AnyTicket:
        generation_id = self.group.generation_id if generation is None else generation
        return self._ask(
            lambda ticket: self.group.heartbeat(ticket, member_id, instance, generation_id, self.now)
        )

    def leave(self, *member_ids: str, instance: str | None = None) -> AnyTicket:
        leavers = tuple(Leaver(member_id, instance) for member_id in member_ids)
        return self._ask(lambda ticket: decided(self.group.leave(ticket, leavers, self.now, self.now_ms)))

    def commit(self, member_id: str = "", generation: int = -1) -> ErrorCode:
        request = CommitRequest(self.group.group_id, [], member_id, generation=generation)
        try:
            self.group.check_commit(request, self.now)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # -- time and the log -----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def pass_time(self, seconds: float) -> None:
        """Expire every deadline on the way, as the coordinator's timer does."""
        until = self.now + seconds
        for _ in range(10_000):
            deadline = self.group.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            self._take(self.group.expire(self.now, self.now_ms))
        else:
            raise AssertionError("a deadline that does not go away")
        self.now = until

    def fail_over(self) -> None:
        """Another node takes over. It knows only the log. Parked requests are lost with their connections."""
        self.group = ClassicGroup("g", self.limits, self._rng)
        self.open.clear()
        for record in self.log[-1:]:
            self.group.replay(record)
        self.group.loaded(self.now, heard_until=self.now + STALE_LEADER_S)

    # -- helpers --------------------------------------------------------------------------------------------

    def _ask(self, put: Callable[[AnyTicket], Outcome[GroupRecord]]) -> AnyTicket:
        ticket = new_ticket()
        self.open.add(ticket)
        self._take(put(ticket))
        return ticket

    def _take(self, outcome: Outcome[GroupRecord]) -> None:
        assert len(outcome.records) <= 1
        for record in outcome.records:
            self.log.append(record)
            self.group.replay(record)
        group = self.group
        assert group.members.size_bytes == sum(member.size_bytes() for member in group.members)
        assert group._pending_bytes == sum(map(pending_size, group._pending))
        for ticket, answer in outcome.answers:
            assert ticket in self.open, "answered twice, or never asked"
            self.open.remove(ticket)
            self.answers[ticket] = answer

    def join_new(self, **how: Any) -> AnyTicket:
        """Join as clients do: first ask for a member id, unless there is an instance id."""
        if how.get("instance") is not None:
            return self.join(**how)
        given: JoinAnswer = self.answers[self.join(**how)]
        assert given.error == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(given.member_id, **how)

    def completing(self, *names: str | None) -> list[str]:
        """Makes a generation without an assignment. `names` are instance ids, or None. Returns member ids, the leader
        first."""
        tickets = [self.join_new(instance=name) for name in names]
        while tickets[0] in self.open:
            self.pass_time(self.limits.initial_delay_s)
        return [self.answers[ticket].member_id for ticket in tickets]

    def stable(self, *names: str | None) -> list[str]:
        member_ids = self.completing(*names)
        for member_id in member_ids:
            self.sync(member_id, {each: each.encode() for each in member_ids})
        return member_ids
