"""A group of the consumer protocol (KIP-848): the broker assigns, and each member is brought there by itself.

Three steps, each with its own epoch. The *group epoch* rises whenever members, their subscriptions or the topics
change. The *target assignment* is computed for a group epoch, at most once in `group.consumer.assignment.interval.ms`.
A *member epoch* follows when that member has given up what the target takes from it (broker.groups.consumer_member).
Members whose partitions stay where they are notice nothing but a new number.

Heartbeats are the only way in and out: nothing waits here.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from uuid import UUID

from broker.config.group_config import GroupConfig
from broker.config.node_config import NodeConfig
from broker.coordinator.deadlines import Deadlines
from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.groups import consumer_records as as_records
from broker.groups.assignors import EMPTY, Assignment
from broker.groups.commit import CommitCheck, CommitRequest
from broker.groups.consumer_draft import Draft, assignor_of
from broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    NOTHING,
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
    check_epoch,
    is_leaving,
    said,
)
from broker.groups.consumer_state import ConsumerGroupState
from broker.groups.consumer_subscriptions import Subscriptions, all_names, check_regex
from broker.groups.records import GroupRecord
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

_WAITING_INTERVAL_MS = 500
#: At this pace the heartbeats of all members together are 200 in a second.
_WAITING_INTERVAL_PER_MEMBER_MS = 5
#: Where expressions are more work than is done at a time, everybody else has the loop for so long.
_MATCH_PAUSE_S = 0.1
#: Members put out in one decision for each reason, some 10 kB each at most: all sessions may end at the same moment,
#: and a decision is one batch of the log. The others are still due.
_MAX_EXPIRED = 100


class ConsumerGroup:
    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, config: NodeConfig, image: MetadataImage) -> None:
        self.group_id = group_id
        self._config = config
        self._image = image
        self._durable = ConsumerGroupState()
        # Soft: lost with leadership.
        self._sessions: Deadlines[str] = Deadlines()
        #: Of members in UNREVOKED_PARTITIONS: they have the rebalance timeout to give up what they shall.
        self._revocations: Deadlines[str] = Deadlines()
        #: When a target was last computed here.
        self._assigned_at: float | None = None
        #: When the target that is behind will be computed; None: it is not behind, or the next heartbeat sees to it.
        self._assign_at: float | None = None
        #: When expressions are matched: at once, but not while a member waits for its answer, as in Kafka. Not None
        #: exactly while `_subscriptions` has some pending, and from loading to the first heartbeat where one is new.
        self._match_at: float | None = None
        self._subscriptions = Subscriptions(image)
        #: The topics that members want; None: to be found out again.
        self._names: frozenset[str] | None = None
        self._settings = GroupConfig.resolve(image.configs_of("group", group_id), config)
        #: `end_offset` of the image that the settings are of.
        self._settings_of = image.end_offset

    @property
    def _limits(self) -> GroupConfig:
        if self._image.end_offset != self._settings_of:
            self._settings_of = self._image.end_offset
            self._settings = GroupConfig.resolve(self._image.configs_of("group", self.group_id), self._config)
        return self._settings

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

    def subscribed_among(self, topics: Set[str]) -> Set[str]:
        if self._names is None:
            self._names = all_names(self._durable.members.values(), self._durable.regexes)
        return topics & self._names

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return (
            commit_timestamp_ms  # what is not subscribed to any more; the rest is kept (`subscribed_among`)
        )

    def check_commit(self, request: CommitRequest, now: float) -> CommitCheck | None:
        """A member that has not heard of its new epoch yet may commit what it had in the old one (KIP-1251)."""
        generation = request.generation
        if generation < 0 and self.is_empty:
            return None
        member = self._member(request.member_id)
        if not request.knows_epochs:
            # What such a request names is no member epoch, also where the number happens to be the same.
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

        def check(topic_id: UUID, partition: int) -> ErrorCode:
            since = member.has_since(topic_id, partition)
            return (
                ErrorCode.NONE if since is not None and since <= generation else ErrorCode.STALE_MEMBER_EPOCH
            )

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        if member_epoch != self._member(member_id or "").epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def _member(self, member_id: str) -> Member:
        member = self._durable.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} has no member {member_id}")
        return member

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

    def loaded(self, now: float) -> None:
        for member in self._durable.members.values():
            self._put_off(member, now)
        self._match_at = now if self._draft().has_new_regexes else None

    def next_deadline(self) -> float | None:
        deadlines = (self._sessions.next(), self._revocations.next(), self._assign_at, self._match_at)
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now: float, now_ms: int) -> Outcome[GroupRecord]:
        """Members that were not heard, or kept what they were to give up, are put out; expressions are matched;
        a target is computed."""
        due = {*self._sessions.due(now, _MAX_EXPIRED), *self._revocations.due(now, _MAX_EXPIRED)}
        draft = self._draft()
        self._remove(draft, sorted(due & draft.members.keys()))
        if self._match_at is not None and self._match_at <= now:
            draft.match(now, now_ms)
            draft.raise_epoch(must=False)
            self._match_at = now + _MATCH_PAUSE_S if self._subscriptions.has_pending else None
        if self._assign_at is not None and self._assign_at <= now:
            self._assign(draft, now, now_ms)
        return Outcome(draft.records)

    def _put_off(self, member: Member, now: float) -> None:
        self._sessions.set(member.member_id, now + self._limits.consumer_session_timeout_ms / 1000)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revocations.set(member.member_id, None)
        elif member.member_id not in self._revocations:
            timeout_s = max(member.subscription.rebalance_timeout_ms, 0) / 1000
            self._revocations.set(member.member_id, now + timeout_s)

    # -- heartbeats --------------------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        """Answer: HeartbeatAnswer. Raises KafkaError. The request has passed `check_request`."""
        if is_leaving(request):
            return self._leave(ticket, request)
        member, replaced = self._who(request)
        subscription = said(member.subscription, request)
        outcome: Outcome[GroupRecord] = Outcome()
        reconciled = member
        if self._has_news(member, subscription, now):
            draft = self._draft()
            reconciled = self._change(draft, member, replaced, subscription, request, now, now_ms)
            outcome.records = draft.records
        if replaced is not None:
            self._sessions.set(replaced, None)
        if reconciled.revoking != member.revoking:
            self._revocations.set(member.member_id, None)  # another time for other partitions
        self._put_off(reconciled, now)
        answer = HeartbeatAnswer(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self._interval_ms(reconciled),
        )
        # Who comes with another epoch than its own joins, or has missed an answer.
        is_behind = request.member_epoch != member.epoch or request.member_epoch == JOIN_EPOCH
        if is_behind or request.is_whole or reconciled.assigned != member.assigned:
            answer = replace(answer, assignment=_partitions(reconciled.assigned))
        return outcome.add_answer(ticket, answer)

    def _who(self, request: HeartbeatRequest) -> tuple[Member, str | None]:
        """The member, perhaps a new one; and the member id that it replaces, if it is a static member that is back."""
        joins = request.member_epoch == JOIN_EPOCH
        known = self._durable.members.get(request.member_id)
        if request.instance_id is not None:
            known = self._durable.static_member(request.instance_id)
            if known is not None and known.epoch == LEAVE_FOR_A_WHILE_EPOCH and joins:
                back = Member(request.member_id, known.subscription, assigned=known.assigned)
                return back, known.member_id
            self._check_instance(request, known, joins)
        if known is not None:
            if not joins:
                check_epoch(known, request)
            return known, None
        if not joins:
            self._member(request.member_id)  # raises
        if len(self._durable.members) >= self._config.consumer_group_max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self.group_id} has as many members as it may"
            )
        return Member(request.member_id), None

    def _check_instance(self, request: HeartbeatRequest, known: Member | None, joins: bool) -> None:
        if known is None:
            if not joins:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no instance {request.instance_id}")
        elif known.member_id != request.member_id:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID if joins else ErrorCode.FENCED_INSTANCE_ID,
                f"instance {request.instance_id} is member {known.member_id}",
            )

    def _interval_ms(self, member: Member) -> int:
        """Who waits for what others give up, or for the target, is asked to come back soon: they give it up at any
        moment, and nobody can tell the one who waits. The more members, the less often."""
        usual_ms = self._limits.consumer_heartbeat_interval_ms
        waits = member.state is MemberState.UNRELEASED_PARTITIONS
        if not waits and self._assign_at is None and self._match_at is None:
            return usual_ms
        return min(
            usual_ms, max(_WAITING_INTERVAL_MS, _WAITING_INTERVAL_PER_MEMBER_MS * len(self._durable.members))
        )

    def _has_news(self, member: Member, subscription: Subscription, now: float) -> bool:
        """The usual heartbeat has none, and costs next to nothing."""
        durable = self._durable
        return (
            durable.epoch != durable.assignment_epoch
            or not member.is_reconciled(durable.assignment_epoch)
            or subscription != member.subscription
            or durable.members.get(member.member_id) is not member
            or self._subscriptions.may_have_changed(durable.regexes, now)
        )

    def _change(
        self,
        draft: Draft,
        member: Member,
        replaced: str | None,
        subscription: Subscription,
        request: HeartbeatRequest,
        now: float,
        now_ms: int,
    ) -> Member:
        """Everything that one heartbeat can bring about; returns the member after it. Raises KafkaError."""
        if subscription.topic_regex not in ("", member.subscription.topic_regex):
            check_regex(subscription.topic_regex)
        updated = replace(member, subscription=subscription)
        is_new = replaced is None and member.member_id not in draft.members
        resubscribes = not is_new and _wants(subscription) != _wants(member.subscription)
        if replaced is not None:
            draft.replace(replaced, updated)
        elif is_new or updated != member:
            draft.put(updated)
        if draft.records or self._subscriptions.may_have_changed(self._durable.regexes, now):
            draft.use_regexes(now)
            draft.raise_epoch(must=is_new or resubscribes)
            self._match_soon(now)
        if draft.epoch > draft.assignment_epoch:
            self._assign_when_due(draft, resubscribes, now, now_ms)
        stepped = reconcile(
            updated,
            draft.targets.get(member.member_id, EMPTY),
            draft.assignment_epoch,
            request.owned,
            lambda topic_id, partition: self._durable.owner(topic_id, partition) is None,
        )
        if stepped is not updated:
            draft.step(stepped)
        return stepped

    def _match_soon(self, now: float) -> None:
        if not self._subscriptions.has_pending:
            self._match_at = None
        elif self._match_at is None:
            self._match_at = now

    def _draft(self) -> Draft:
        return Draft(
            self.group_id, self._durable, self._subscriptions, self._image, self._config.consumer_assignors
        )

    def _assign_when_due(self, draft: Draft, is_urgent: bool, now: float, now_ms: int) -> None:
        """A thousand members that join within a second cost one assignment, not a thousand. Who changes what it
        subscribes to gets its answer at once: the old target may hold what it does not want any more."""
        interval_s = self._limits.consumer_assignment_interval_ms / 1000
        if is_urgent or self._assigned_at is None or now >= self._assigned_at + interval_s:
            self._assign(draft, now, now_ms)
        else:
            self._assign_at = self._assigned_at + interval_s

    def _assign(self, draft: Draft, now: float, now_ms: int) -> None:
        draft.assign(now_ms)
        self._assigned_at = now
        self._assign_at = None

    # -- leaving -----------------------------------------------------------------------------------------

    def _leave(self, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest) -> Outcome[GroupRecord]:
        if request.instance_id is not None:
            self._check_instance(request, self._durable.static_member(request.instance_id), joins=False)
        member = self._member(request.member_id)
        draft = self._draft()
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            away = replace(
                member,
                epoch=LEAVE_FOR_A_WHILE_EPOCH,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                revoking=NOTHING,
            )
            draft.step(away)
            self._revocations.set(
                member.member_id, None
            )  # its session goes on: that is how long it may be away
        else:
            self._remove(draft, [member.member_id])
        answer = HeartbeatAnswer(member_id=member.member_id, member_epoch=request.member_epoch)
        return Outcome(draft.records).add_answer(ticket, answer)

    def _remove(self, draft: Draft, member_ids: list[str]) -> None:
        """The next heartbeat of anybody has the target computed."""
        if not member_ids:
            return
        draft.remove(member_ids)
        for member_id in member_ids:
            self._sessions.set(member_id, None)
            self._revocations.set(member_id, None)
        if not draft.members:
            self._assign_at = None


def _wants(subscription: Subscription) -> tuple[object, ...]:
    """What the assignment depends on."""
    return subscription.topics, subscription.server_assignor


def _partitions(owned: Owned) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
