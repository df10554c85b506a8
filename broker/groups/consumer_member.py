"""One member of a consumer group, and how it gets from what it has to what it is to have (KIP-848).

A partition is taken away before anybody else gets it: the member is told first, says in a heartbeat that it no longer
owns it, and only then it is free. Whoever waits for it goes on with what it has meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from uuid import UUID

from broker.groups.assignors import Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""Of a static member that will be back under the same instance id; its partitions stay with it."""


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up, and stays in its epoch until it has said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It has all that is free of its target; others still own the rest."""


Owned = Mapping[UUID, Mapping[int, int]]
"""Topic -> partition -> the member epoch at which it was given to the member (KIP-1251). No empty topic."""

NOTHING: Owned = {}
NOTHING_OF_TOPIC: Mapping[int, int] = {}


TopicsWanted = tuple[tuple[str, ...], str]
"""Topics by name, and an expression that more topics match; empty: none. Most members of a group want the same."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member says about itself. A heartbeat repeats only what has changed."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """In order, none twice."""
    topic_regex: str = ""
    """Empty: none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None

    @property
    def topics(self) -> TopicsWanted:
        return self.topic_names, self.topic_regex


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    subscription: Subscription = Subscription()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The one before, with which a member may come once more: the answer that told it the new one may be lost."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    """What it may work on. Invariant: a partition is in `assigned` or `revoking` of one member at most."""
    revoking: Owned = field(default_factory=dict)
    """What it was told to give up and may still work on. Not empty exactly in UNREVOKED_PARTITIONS."""

    def owns(self) -> list[tuple[UUID, int]]:
        """What nobody else may have."""
        return [
            (topic_id, partition)
            for owned in (self.assigned, self.revoking)
            for topic_id, partitions in owned.items()
            for partition in partitions
        ]

    def has_since(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch in which it was given a partition; None: it has not got it."""
        for owned in (self.assigned, self.revoking):
            if partition in owned.get(topic_id, NOTHING_OF_TOPIC):
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
    """The next step towards `target`; the same member where there is none.

    `reported` is what the member says that it owns, None where it does not say. `is_free` tells of partitions that are
    not this member's whether nobody owns them.
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
        given_up = member.revoking.get(topic_id, NOTHING_OF_TOPIC)
        for partition in wanted - kept.get(topic_id, NOTHING_OF_TOPIC).keys():
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
        revoking=NOTHING,
    )
    # A member that waits and gets nothing new has nothing new to record either.
    return member if replace(stepped, previous_epoch=member.previous_epoch) == member else stepped


def _still_owns(reported: Assignment | None, revoking: Owned) -> bool:
    if reported is None:
        return True
    return any(
        not partitions.keys().isdisjoint(reported.get(topic_id, ()))
        for topic_id, partitions in revoking.items()
    )


def is_part_of(reported: Assignment | None, assigned: Owned) -> bool:
    """Does a member own nothing but what it was given? It does not say: no."""
    if reported is None:
        return False
    return all(
        partitions <= assigned.get(topic_id, NOTHING_OF_TOPIC).keys()
        for topic_id, partitions in reported.items()
    )
