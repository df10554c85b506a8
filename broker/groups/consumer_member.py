"""One member of a consumer group, and how it gets from its assignment to its target assignment (KIP-848).

A partition is revoked before another member gets it. Its owner is told first, and says in a heartbeat that it does not
own the partition any more. Only then is the partition free. A member that waits for it works on its other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from broker.groups.assignors import Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member leaves and will be back under the same instance id. It keeps its partitions."""


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions, and stays in its epoch until a heartbeat says that it has."""
    UNRELEASED_PARTITIONS = 2
    """The member has all partitions of its target that are free. Other members still own the rest."""


Owned = Mapping[UUID, Mapping[int, int]]
"""Topic id -> partition -> the member epoch at which it was assigned to the member (KIP-1251). No topic without
partitions."""

NO_PARTITIONS: Owned = {}
_NONE_OF_TOPIC: Mapping[int, int] = {}


TopicsWanted = tuple[tuple[str, ...], str]
"""Topic names, and a regular expression for further topics; empty: none. Most members of a group have equal ones."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member has said about itself. A heartbeat names only what has changed."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    topic_regex: str = ""
    """Empty: no expression."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None

    @property
    def topics(self) -> TopicsWanted:
        return self.topic_names, self.topic_regex

    @property
    def assignor_inputs(self) -> tuple[object, ...]:
        """What the target assignment depends on."""
        return self.topics, self.server_assignor


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    subscription: Subscription = Subscription()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The epoch before. The member may use it once more, because the answer that told it the new one may be lost."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    """Partitions that it may work on. Invariant: a partition is in `assigned` or `revoking` of one member at most."""
    revoking: Owned = field(default_factory=dict)
    """Partitions that it was told to give up and may still work on. Not empty exactly in UNREVOKED_PARTITIONS."""

    def owned_partitions(self) -> list[tuple[UUID, int]]:
        """Partitions that no other member may be assigned."""
        return [
            (topic_id, partition)
            for owned in (self.assigned, self.revoking)
            for topic_id, partitions in owned.items()
            for partition in partitions
        ]

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """The member epoch at which it was assigned a partition. None: it does not own that partition."""
        for owned in (self.assigned, self.revoking):
            if partition in owned.get(topic_id, _NONE_OF_TOPIC):
                return owned[topic_id][partition]
        return None

    def is_reconciled(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


def reconcile(
    member: Member,
    target: Assignment,
    target_epoch: int,
    reported: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> Member:
    """The member after the next step towards `target`; the same object if there is no step to take.

    `reported` is what the member says it owns, None if its heartbeat does not say. `is_free` is asked about partitions
    that this member does not own: whether nobody else does.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(reported, member.revoking):
        return member
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, epoch in partitions.items():
            (kept if partition in wanted else revoking).setdefault(topic_id, {})[partition] = epoch
    if revoking and _still_owns(reported, revoking):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    state = MemberState.STABLE
    for topic_id, wanted in target.items():
        given_up = member.revoking.get(topic_id, _NONE_OF_TOPIC)
        for partition in wanted - kept.get(topic_id, _NONE_OF_TOPIC).keys():
            if partition in given_up or is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                state = MemberState.UNRELEASED_PARTITIONS
    stepped = replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=kept,
        revoking=NO_PARTITIONS,
    )
    # Nothing is recorded for a member that goes on waiting.
    return member if replace(stepped, previous_epoch=member.previous_epoch) == member else stepped


def _still_owns(reported: Assignment | None, revoking: Owned) -> bool:
    if reported is None:
        return True
    return any(
        not partitions.keys().isdisjoint(reported.get(topic_id, ()))
        for topic_id, partitions in revoking.items()
    )


def owns_only_assigned(reported: Assignment | None, assigned: Owned) -> bool:
    """Whether a member says that it owns nothing but what is assigned to it. False if it does not say."""
    if reported is None:
        return False
    return all(
        partitions <= assigned.get(topic_id, _NONE_OF_TOPIC).keys()
        for topic_id, partitions in reported.items()
    )
