"""The members of a classic group, the protocols that all of them support, and the one that they choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from broker.coordinator.memory import text_size
from broker.groups.classic_messages import JoinRequest, Protocols
from protocol.group_records import MemberMetadata

#: What a member takes in memory beside its texts, and each of its protocols.
_OVERHEAD_BYTES = 700
_PROTOCOL_BYTES = 150
#: What each counts for at least, so that its metadata and assignment may change a little when memory is short.
MIN_MEMBER_BYTES = 2048


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
    """Its assignment in the log."""
    is_new: bool = True
    """It has not been in a generation yet."""

    def size_bytes(self, assignment: bytes | None = None) -> int:
        """What it takes in memory: with this assignment instead of its own, if one is given."""
        texts = (self.member_id, self.instance_id, self.client_id, self.client_host)
        size_bytes = _OVERHEAD_BYTES + sum(map(text_size, texts)) + protocols_size(self.protocols)
        size_bytes += len(self.assignment if assignment is None else assignment)
        return max(size_bytes, MIN_MEMBER_BYTES)

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
        """Its metadata for a protocol, which it must support."""
        return next(metadata for name, metadata in self.protocols if name == protocol)


def protocols_size(protocols: Protocols) -> int:
    return sum(_PROTOCOL_BYTES + text_size(name) + len(metadata) for name, metadata in protocols)


class Members:
    """Members by member id, in the order in which they joined. Static members can be found by instance id, too.

    Invariants: `_support[name]` is how many members support that protocol. `_instances` holds exactly the members that
    have an instance id. `size_bytes` is the sum of the members.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self.size_bytes = 0

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
        """The current member id of a static member."""
        return self._instances.get(instance_id)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members, "a new member has a new id"
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances, "an instance that is there is renamed"
            self._instances[member.instance_id] = member.member_id
        self._count_support(member.protocols, 1)
        self.size_bytes += member.size_bytes()

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._count_support(member.protocols, -1)
        self.size_bytes -= member.size_bytes()
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """The member joined again, with this request."""
        self.size_bytes -= member.size_bytes()
        self._count_support(member.protocols, -1)
        self._count_support(request.protocols, 1)
        member.protocols = request.protocols
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.size_bytes += member.size_bytes()

    def assign(self, member: Member, assignment: bytes) -> None:
        self.size_bytes += member.size_bytes(assignment) - member.size_bytes()
        member.assignment = assignment

    def rename(self, member: Member, member_id: str) -> None:
        """A static member is back under a new member id. It keeps its place and its assignment."""
        assert member.instance_id is not None
        del self._members[member.member_id]
        self.size_bytes -= member.size_bytes()
        member.member_id = member_id
        self.size_bytes += member.size_bytes()
        self._members[member_id] = member
        self._instances[member.instance_id] = member_id

    def assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self}

    def _count_support(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    def support_one_of(self, protocols: Protocols) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._support[name] == len(self._members) for name, _ in protocols)

    def choose_protocol(self) -> str:
        """The protocol that all members support and most members prefer. Of several, the one that the first member
        prefers."""
        votes: Counter[str] = Counter()
        for member in self:
            shared = (name for name, _ in member.protocols if self._support[name] == len(self._members))
            votes[next(shared)] += 1
        best = max(votes.values())
        first = next(iter(self))
        return next(name for name, _ in first.protocols if votes[name] == best)
