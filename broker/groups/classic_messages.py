"""Requests and answers of classic groups as values without wire versions. The error comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from protocol.errors import ErrorCode

#: (name, metadata), in the order in which a member prefers them.
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str = ""
    """Empty for a member that has no id yet."""
    instance_id: str | None = None
    """The name of a static member (KIP-345)."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    takes_id_first: bool = True
    """A new member is given its id before it may join (KIP-394, version 4 on)."""
    may_skip_assignment: bool = True
    """A leader of this client understands skip_assignment: the assignment stays as it is (KIP-814, version 9 on)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members if this one is the leader, otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member_id: str
    instance_id: str | None = None
    generation_id: int
    protocol_type: str | None = None
    """None in versions that do not have it, as is `protocol`."""
    protocol: str | None = None
    assignments: Mapping[str, bytes]
    """By member id. Only the leader's request has any. A member that is not named gets an empty assignment."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    error: ErrorCode


class Leaver(NamedTuple):
    """A member that leaves, named by its member id or by its instance id alone."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    error: ErrorCode
    members: tuple[tuple[Leaver, ErrorCode], ...] = ()
    """In the order of the request."""


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicDescription:
    state: str
    protocol_type: str
    protocol: str
    """Empty unless the group is stable. So is the metadata of the members."""
    members: tuple[MemberDescription, ...]
