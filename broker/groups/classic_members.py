"""The members of a classic group: who they are, which protocols they share, and which one they choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from broker.groups.classic_messages import JoinRequest, Protocols
from protocol.group_records import MemberMetadata


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    """As the log has it."""
    is_new: bool = True
    """No generation has had it yet."""

    @classmethod
    def of_request(cls, member_id: str, request: JoinRequest) -> Member:
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )

    @classmethod
    def of_record(cls, stored: MemberMetadata, protocol: str) -> Member:
        return cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=((protocol, stored.subscription),),
            is_new=False,
        )

    def record(self, protocol: str, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def metadata(self, protocol: str) -> bytes:
        """What it says under a protocol. Only for one that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)


class Members:
    """By member id, in the order in which they came; static ones by instance id, too.

    Invariants: `_support[name]` is how many members support that protocol; `_instances` names exactly the members that
    have an instance id.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> str | None:
        """The member id that an instance has now."""
        return self._instances.get(instance_id)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members, "ids are drawn at random"
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances, "its successor replaces it"
            self._instances[member.instance_id] = member.member_id
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._count(member.protocols, -1)
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """It joined again, with this."""
        self._count(member.protocols, -1)
        self._count(request.protocols, 1)
        member.protocols = request.protocols
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def rename(self, member: Member, member_id: str) -> None:
        """A static member's successor takes its place, and its assignment."""
        assert member.instance_id is not None
        del self._members[member.member_id]
        member.member_id = member_id
        self._members[member_id] = member
        self._instances[member.instance_id] = member_id

    def assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self}

    def _count(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    def share(self, protocols: Protocols) -> bool:
        """Whether one of these is supported by everybody."""
        return any(self._support[name] == len(self._members) for name, _ in protocols)

    def choose(self) -> str:
        """The protocol that everybody supports and most prefer. Of equals, the one that the first member prefers."""
        votes: Counter[str] = Counter()
        for member in self:
            shared = (name for name, _ in member.protocols if self._support[name] == len(self._members))
            votes[next(shared)] += 1
        best = max(votes.values())
        first = next(iter(self))
        return next(name for name, _ in first.protocols if votes[name] == best)
