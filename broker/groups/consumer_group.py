"""A group of the consumer protocol (KIP-848): the broker assigns partitions, and reconciles each member by itself.

There are three steps, each with an epoch of its own. The *group epoch* rises whenever members, their subscriptions or
the topics change. The *target assignment* is computed for a group epoch, at most once in
`group.consumer.assignment.interval.ms`. A *member epoch* follows when that member has given up what the target takes
from it (broker.groups.consumer_member). A member whose partitions stay where they are only gets a new epoch.

Everything happens in heartbeats and in `expire`. Nothing waits here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from dataclasses import replace

from broker.config.group_config import GroupConfig
from broker.config.node_config import NodeConfig
from broker.coordinator.memory import CoordinatorMemory
from broker.coordinator.outcome import Decided, Outcome
from broker.coordinator.ticket import Ticket
from broker.groups import consumer_records as as_records
from broker.groups.assignors import EMPTY, Assignment
from broker.groups.commit import CommitCheck, CommitRequest
from broker.groups.consumer_draft import Draft, Steps, assignor_of
from broker.groups.consumer_identity import (
    check_commit,
    check_fetch,
    check_instance,
    existing_member,
    identify_member,
)
from broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    Member,
    MemberState,
    Owned,
    Subscription,
    reconcile,
)
from broker.groups.consumer_requests import (
    GroupDescription,
    HeartbeatAnswer,
    HeartbeatRequest,
    MemberDescription,
    is_leaving,
    updated_subscription,
)
from broker.groups.consumer_schedule import Schedule
from broker.groups.consumer_size import SEARCH_BYTES, added_size, group_size, topics_size
from broker.groups.consumer_state import ConsumerGroupState
from broker.groups.consumer_subscriptions import Subscriptions, all_names, check_regex
from broker.groups.records import GroupRecord
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

#: The heartbeat interval of a member that waits for partitions, for a target or for an expression.
_WAITING_INTERVAL_MS = 500
#: ... but not less than this for each member of the group: all together send 200 heartbeats a second at most.
_WAITING_INTERVAL_PER_MEMBER_MS = 5
#: The pause between two slices of matching, in which the loop does other work.
_MATCHING_PAUSE_S = 0.1

Deciding = Generator[None, None, Outcome[GroupRecord]]


class ConsumerGroup:
    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(
        self, group_id: str, config: NodeConfig, image: MetadataImage, memory: CoordinatorMemory
    ) -> None:
        self.group_id = group_id
        self._memory = memory
        self._config = config
        self._image = image
        self._durable = ConsumerGroupState()
        # Soft state, which is lost with leadership.
        self._schedule = Schedule()
        self._subscriptions = Subscriptions(image)
        #: The names of all topics that members are subscribed to. None: to be found out again.
        self._names: Set[str] | None = None
        self._cached_settings = GroupConfig.resolve(image.configs_of("group", group_id), config)
        #: `end_offset` of the image that `_cached_settings` were read from.
        self._cached_settings_at = image.end_offset
        #: The part of `size_bytes` that depends on the topics, as of the last decision that looked at all of them.
        self._topics_bytes = 0

    @property
    def _settings(self) -> GroupConfig:
        if self._image.end_offset != self._cached_settings_at:
            self._cached_settings_at = self._image.end_offset
            configs = self._image.configs_of("group", self.group_id)
            self._cached_settings = GroupConfig.resolve(configs, self._config)
        return self._cached_settings

    # -- questions ---------------------------------------------------------------------------------------

    @property
    def members(self) -> Mapping[str, Member]:
        return self._durable.members

    @property
    def is_empty(self) -> bool:
        return not self._durable.members

    @property
    def state(self) -> str:
        durable = self._durable
        if not durable.members:
            return "Empty"
        if durable.epoch > durable.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled(durable.assignment_epoch) for member in durable.members.values()):
            return "Stable"
        return "Reconciling"

    def describe(self) -> GroupDescription:
        durable = self._durable
        return GroupDescription(
            self.group_id,
            self.state,
            durable.epoch,
            durable.assignment_epoch,
            assignor_of(durable.members.values(), self._config.consumer_assignors),
            [
                MemberDescription(
                    member.member_id,
                    member.subscription,
                    member.epoch,
                    _partitions(member.assigned),
                    durable.targets.get(member.member_id, EMPTY),
                )
                for member in durable.members.values()
            ],
        )

    def subscribed_among(self, topics: Set[str]) -> Generator[None, None, Set[str]]:
        return topics & (yield from self._subscribed_names())

    def _subscribed_names(self) -> Generator[None, None, Set[str]]:
        if self._names is None:
            self._names = yield from all_names(self._durable.members.values(), self._durable.regexes)
        return self._names

    @property
    def size_bytes(self) -> int:
        size_bytes = group_size(self.group_id, self._durable)
        if self._durable.members:
            size_bytes += self._topics_bytes
        return size_bytes + (SEARCH_BYTES if self._subscriptions.is_searching else 0)

    def measure(self) -> Steps:
        names = yield from self._subscribed_names()
        durable = self._durable
        self._topics_bytes = yield from topics_size(
            durable.members, durable.regexes.keys(), names, self._image
        )

    def _check_room(
        self, member: Member, subscription: Subscription, *, is_new: bool
    ) -> Generator[None, None, None]:
        """Raises GROUP_MAX_SIZE_REACHED if there is no memory for this change."""
        names = yield from self._subscribed_names()
        added_bytes = yield from added_size(
            self._durable, names, member, subscription, self._image, is_new=is_new
        )
        if not self._memory.has_room(added_bytes):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"groups take varve.max.group.bytes ({self._memory.max_bytes}) on their coordinator",
            )

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms  # Offsets of subscribed topics are kept (`subscribed_among`).

    def check_commit(self, request: CommitRequest, now: float) -> CommitCheck | None:
        return check_commit(self._durable, self.group_id, request)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        check_fetch(self._durable, self.group_id, member_id, member_epoch)

    # -- durable state -----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        self._durable.replay(record)
        self._names = None

    def tombstones(self) -> list[GroupRecord]:
        tombstones: list[GroupRecord] = []
        for member_id in self._durable.members:
            tombstones += as_records.member_tombstones(self.group_id, member_id)
        tombstones += [as_records.regex_tombstone(self.group_id, regex) for regex in self._durable.regexes]
        return tombstones + as_records.group_tombstones(self.group_id)

    # -- deadlines ---------------------------------------------------------------------------------------

    def loaded(self, now: float, heard_until: float) -> None:
        for member in self._durable.members.values():
            self._schedule.renew_session(member, self._settings, heard_until)
        self._schedule.matching_due_at = now if self._new_draft().has_new_regexes else None

    def next_deadline(self) -> float | None:
        return self._schedule.next_deadline()

    def expire(self, now: float, now_ms: int) -> Deciding:
        """Remove members whose session or revocation timed out. Match expressions and compute the target if due."""
        schedule, draft = self._schedule, self._new_draft()
        due = sorted(schedule.take_due_members(now) & draft.members.keys())
        yield from self._remove_members(draft, due)
        if schedule.matching_due_at is not None and schedule.matching_due_at <= now:
            yield from draft.match_regexes(now, now_ms)
            yield from draft.raise_epoch(must=False)
            has_pending = self._subscriptions.has_pending
            schedule.matching_due_at = now + _MATCHING_PAUSE_S if has_pending else None
        if schedule.target_due_at is not None and schedule.target_due_at <= now:
            yield from self._compute_target(draft, now, now_ms)
        return self._outcome(draft)

    def _outcome(self, draft: Draft) -> Outcome[GroupRecord]:
        self._topics_bytes = self._topics_bytes if draft.topics_bytes is None else draft.topics_bytes
        return Outcome(draft.records)

    # -- heartbeats --------------------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest, now: float, now_ms: int
    ) -> Decided[GroupRecord]:
        """Answer: HeartbeatAnswer. Raises KafkaError. The request has passed `check_request`."""
        if is_leaving(request):
            return self._leave(ticket, request)
        member, replaced_id = identify_member(self._durable, request, self._config.consumer_group_max_size)
        subscription = updated_subscription(member.subscription, request)
        if self._needs_decision(member, subscription, now):
            return self._decide_heartbeat(ticket, request, member, replaced_id, subscription, now, now_ms)
        return self._answer(Outcome(), ticket, request, member, member, now)

    def _decide_heartbeat(
        self,
        ticket: Ticket[HeartbeatAnswer],
        request: HeartbeatRequest,
        member: Member,
        replaced_id: str | None,
        subscription: Subscription,
        now: float,
        now_ms: int,
    ) -> Deciding:
        draft = self._new_draft()
        reconciled = yield from self._decide(draft, member, replaced_id, subscription, request, now, now_ms)
        if replaced_id is not None:
            self._schedule.drop_member(replaced_id)
        return self._answer(self._outcome(draft), ticket, request, member, reconciled, now)

    def _answer(
        self,
        outcome: Outcome[GroupRecord],
        ticket: Ticket[HeartbeatAnswer],
        request: HeartbeatRequest,
        member: Member,
        reconciled: Member,
        now: float,
    ) -> Outcome[GroupRecord]:
        """Add the answer to a heartbeat that has made `reconciled` of `member`."""
        if reconciled.revoking != member.revoking:
            self._schedule.end_revocation(member.member_id)  # Other partitions have a deadline of their own.
        self._schedule.renew_session(reconciled, self._settings, now)
        answer = HeartbeatAnswer(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(reconciled),
        )
        # A member that names another epoch than its own joins, or has missed an answer.
        is_behind = request.member_epoch != member.epoch or request.member_epoch == JOIN_EPOCH
        if is_behind or request.is_whole or reconciled.assigned != member.assigned:
            answer = replace(answer, assignment=_partitions(reconciled.assigned))
        return outcome.add_answer(ticket, answer)

    def _heartbeat_interval_ms(self, member: Member) -> int:
        """A member that waits for partitions of others, or for the target assignment, is asked to come back soon: the
        broker cannot call it when they are free. The more members the group has, the longer that interval is."""
        usual_ms = self._settings.consumer_heartbeat_interval_ms
        schedule = self._schedule
        waits_for_group = schedule.target_due_at is not None or schedule.matching_due_at is not None
        if member.state is not MemberState.UNRELEASED_PARTITIONS and not waits_for_group:
            return usual_ms
        shortest_ms = _WAITING_INTERVAL_PER_MEMBER_MS * len(self._durable.members)
        return min(usual_ms, max(_WAITING_INTERVAL_MS, shortest_ms))

    def _needs_decision(self, member: Member, subscription: Subscription, now: float) -> bool:
        """False for the usual heartbeat, which changes nothing and must cost next to nothing."""
        durable = self._durable
        return (
            durable.epoch != durable.assignment_epoch
            or not member.is_reconciled(durable.assignment_epoch)
            or subscription != member.subscription
            or durable.members.get(member.member_id) is not member
            or self._subscriptions.may_have_changed(durable.regexes, now)
        )

    def _decide(
        self,
        draft: Draft,
        member: Member,
        replaced_id: str | None,
        subscription: Subscription,
        request: HeartbeatRequest,
        now: float,
        now_ms: int,
    ) -> Generator[None, None, Member]:
        """Put everything into the draft that this heartbeat changes. Returns the member after it. Raises KafkaError."""
        if subscription.topic_regex not in ("", member.subscription.topic_regex):
            check_regex(subscription.topic_regex)
        updated = replace(member, subscription=subscription)
        is_new = replaced_id is None and member.member_id not in draft.members
        resubscribes = not is_new and subscription.assignor_inputs != member.subscription.assignor_inputs
        if subscription != member.subscription or is_new:
            yield from self._check_room(member, subscription, is_new=is_new)
        if replaced_id is not None:
            draft.replace_member(replaced_id, updated)
        elif is_new or updated != member:
            draft.put_member(updated)
        if draft.records or self._subscriptions.may_have_changed(self._durable.regexes, now):
            draft.use_regexes(now)
            yield from draft.raise_epoch(must=is_new or resubscribes)
            self._schedule_matching(now)
        if draft.epoch > draft.assignment_epoch:
            # A thousand members that join within a second cost one assignment, not a thousand. A member that changes
            # its subscription does not wait: the old target may hold topics that it does not want any more.
            interval_s = self._settings.consumer_assignment_interval_ms / 1000
            if resubscribes or not self._schedule.postpone_target(interval_s, now):
                yield from self._compute_target(draft, now, now_ms)
        reconciled = reconcile(
            updated,
            draft.targets.get(member.member_id, EMPTY),
            draft.assignment_epoch,
            request.owned,
            lambda topic_id, partition: self._durable.owner(topic_id, partition) is None,
        )
        if reconciled is not updated:
            draft.put_assignment(reconciled)
        return reconciled

    def _schedule_matching(self, now: float) -> None:
        if not self._subscriptions.has_pending:
            self._schedule.matching_due_at = None
        elif self._schedule.matching_due_at is None:
            self._schedule.matching_due_at = now

    def _new_draft(self) -> Draft:
        return Draft(
            self.group_id, self._durable, self._subscriptions, self._image, self._config.consumer_assignors
        )

    def _compute_target(self, draft: Draft, now: float, now_ms: int) -> Steps:
        yield from draft.compute_target(now_ms)
        self._schedule.target_computed(now)

    # -- leaving -----------------------------------------------------------------------------------------

    def _leave(self, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest) -> Deciding:
        if request.instance_id is not None:
            check_instance(request, self._durable.static_member(request.instance_id), joins=False)
        member = existing_member(self._durable, self.group_id, request.member_id)
        draft = self._new_draft()
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # Its session goes on: that is how long it may be away.
            self._schedule.end_revocation(member.member_id)
            draft.put_assignment(
                replace(
                    member,
                    epoch=LEAVE_STATIC_EPOCH,
                    previous_epoch=member.epoch,
                    state=MemberState.STABLE,
                    revoking=NO_PARTITIONS,
                )
            )
        else:
            yield from self._remove_members(draft, [member.member_id])
        answer = HeartbeatAnswer(member_id=member.member_id, member_epoch=request.member_epoch)
        return self._outcome(draft).add_answer(ticket, answer)

    def _remove_members(self, draft: Draft, member_ids: list[str]) -> Steps:
        """The next heartbeat of another member has the target assignment computed."""
        if not member_ids:
            return
        yield from draft.remove_members(member_ids)
        for member_id in member_ids:
            self._schedule.drop_member(member_id)
        if not draft.members:
            self._schedule.target_due_at = None


def _partitions(owned: Owned) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
