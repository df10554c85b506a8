"""A consumer group without a broker: its shard, topics, and members that follow KIP-848."""

from __future__ import annotations

import random
from collections.abc import Mapping
from uuid import UUID

from broker.config.sources import load
from broker.coordinator.outcome import Outcome
from broker.groups import consumer_shard
from broker.groups.consumer_group import ConsumerGroup
from broker.groups.consumer_member import Member
from broker.groups.consumer_requests import GroupDescription, HeartbeatAnswer, HeartbeatRequest
from broker.groups.consumer_size import member_size, names_size
from broker.groups.records import GroupRecord, decode, encode
from broker.groups.shard import Shard
from broker.metadata import record_codec
from broker.metadata import records as metadata
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode
from tests.broker.groups.tickets import decided, new_ticket

GROUP = "g"
Partition = tuple[UUID, int]


class Topics:
    """The metadata of a cluster that only has topics."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def set(self, name: str, partitions: int) -> UUID:
        """Create a topic, or add partitions to it."""
        known = self.image.topic_named(name)
        topic_id = UUID(int=self.image.end_offset + 1) if known is None else known.topic_id
        node = metadata.PartitionAssignment((1,), (UUID(int=7),), (0,))
        key, value = record_codec.encode(metadata.TopicRecord(topic_id, name, (node,) * partitions))
        self.image.replay(key, value, self.image.end_offset, 0)
        return topic_id

    def configure_group(self, **settings: object) -> None:
        configs = {key.replace("_", "."): str(value) for key, value in settings.items()}
        key, value = record_codec.encode(metadata.ConfigsRecord("group", GROUP, configs))
        self.image.replay(key, value, self.image.end_offset, 0)

    def delete(self, name: str) -> None:
        topic = self.image.topic_named(name)
        assert topic is not None
        key, value = record_codec.topic_tombstone(topic.topic_id)
        self.image.replay(key, value, self.image.end_offset, 0)


class Coordinator:
    """A shard whose records are committed as soon as they are decided. Invariants are checked after each decision."""

    def __init__(self, topics: Topics, **settings: object) -> None:
        self.topics = topics
        self.now = 100.0
        flags = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.config = load(flags=flags).config
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self._new_shard()

    def _new_shard(self) -> Shard:
        return Shard(self.config, self.topics.image, random.Random(1), 1 << 20)

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def members(self) -> Mapping[str, Member]:
        group = self.shard.groups.get(GROUP)
        return group.members if isinstance(group, ConsumerGroup) else {}

    def describe(self) -> GroupDescription:
        return self.group.describe()

    def ask(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        asked = new_ticket()
        outcome = decided(
            consumer_shard.heartbeat(self.shard, asked, request, self.now, int(self.now * 1000))
        )
        self._carry_out(outcome)
        ((ticket, answer),) = outcome.answers
        assert ticket is asked
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def _carry_out(self, outcome: Outcome[GroupRecord]) -> None:
        for record in outcome.records:
            key, value = encode(record)
            self.log.append((key, value))
            replayed = decode(memoryview(key), None if value is None else memoryview(value))
            assert replayed is not None
            self.shard.replay(replayed)
        self.shard.update_deadline(GROUP)
        self._check()

    def _check(self) -> None:
        if GROUP not in self.shard.groups:
            return
        described = self.describe()
        assert described.assignment_epoch <= described.epoch
        durable = self.group._durable
        sizes = [member_size(member_id, member.subscription) for member_id, member in durable.members.items()]
        assert durable.members_bytes == sum(sizes) + sum(map(names_size, durable.regexes.values()))
        owners: dict[Partition, str] = {}
        members = self.group.members
        for member in members.values():
            for partition in member.owned_partitions():
                assert owners.setdefault(partition, member.member_id) == member.member_id, "one owner"
            assert member.epoch <= described.epoch
        targets = [each for member in described.members for each in partitions_of(member.target)]
        assert len(targets) == len(set(targets)), "one target owner"

    def pass_time(self, seconds: float) -> None:
        """Expire every deadline on the way."""
        end = self.now + seconds
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.expire()
        self.now = end

    def expire(self) -> None:
        """Expire what is due now, in one decision."""
        for group_id in self.shard.take_due_keys(self.now):
            self._carry_out(decided(self.shard.expire(group_id, self.now, int(self.now * 1000))))

    def fail_over(self) -> None:
        """Another node loads the log, as if it were compacted."""
        newest: dict[bytes, bytes] = {}
        for key, value in self.log:
            newest.pop(key, None)
            if value is not None:
                newest[key] = value
        self.shard = self._new_shard()
        for key, value in newest.items():
            record = decode(memoryview(key), memoryview(value))
            assert record is not None
            self.shard.replay(record)
        list(self.shard.loaded(self.now, 0))
        self._check()


def partitions_of(assignment: object) -> set[Partition]:
    assert isinstance(assignment, dict)
    return {(topic_id, partition) for topic_id, numbers in assignment.items() for partition in numbers}


def joining(**changes: object) -> HeartbeatRequest:
    """A valid first request of a member, with some `changes`."""
    request: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topic_names": ("t",),
        "owned": {},
    }
    return HeartbeatRequest(**{**request, **changes})  # type: ignore[arg-type]


class Consumer:
    """A member that follows the protocol. `owned` are the partitions that it works on, revoked ones included."""

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.wanted: set[Partition] = set()
        #: It owns other partitions than its last heartbeat said.
        self.has_revoked = False
        #: Its next heartbeat must name everything, because the answer to the last one was lost.
        self.is_unsure = False
        self.is_slow = False
        """It does not give up partitions for now."""

    def heartbeat(self, *, lose_answer: bool = False) -> HeartbeatAnswer:
        is_whole = self.epoch == 0 or self.is_unsure
        answer = self.coordinator.ask(
            HeartbeatRequest(
                GROUP,
                self.member_id,
                self.epoch,
                self.instance_id,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=self.rebalance_timeout_ms if is_whole else -1,
                topic_names=self.topics if is_whole else None,
                topic_regex=self.regex if is_whole else None,
                server_assignor=self.assignor if is_whole else None,
                owned=self._owned_by_topic() if is_whole or self.has_revoked else None,
            )
        )
        self.is_unsure = lose_answer
        if not lose_answer:
            self._take(answer)
        return answer

    def subscribe(self, *topics: str, regex: str = "") -> None:
        """The next heartbeat names everything."""
        self.topics, self.regex = topics, regex
        self.is_unsure = True

    def join_again(self) -> None:
        """It was fenced: it gives up its partitions and joins with the next heartbeat."""
        self.epoch, self.owned, self.wanted, self.has_revoked = 0, set(), set(), False

    def _owned_by_topic(self) -> dict[UUID, frozenset[int]]:
        topics = {topic_id for topic_id, _ in self.owned}
        return {topic: frozenset(number for each, number in self.owned if each == topic) for topic in topics}

    def _take(self, answer: HeartbeatAnswer) -> None:
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.join_again()
        if answer.error != ErrorCode.NONE:
            return
        self.epoch = answer.member_epoch
        self.has_revoked = False
        if answer.assignment is not None:
            self.wanted = partitions_of(answer.assignment)
        if self.is_slow:
            self.owned |= self.wanted
        else:
            self.has_revoked = not self.owned <= self.wanted
            self.owned = set(self.wanted)

    def leave(self, epoch: int = -1) -> HeartbeatAnswer:
        self.owned = set()
        request = HeartbeatRequest(GROUP, self.member_id, epoch, self.instance_id)
        self.epoch = 0
        return self.coordinator.ask(request)


def join_in_turn(*consumers: Consumer) -> None:
    """They join one after the other, a second apart."""
    for position, consumer in enumerate(consumers):
        if position:
            consumer.coordinator.pass_time(1.0)
        consumer.heartbeat()


def send_heartbeats_until_stable(*consumers: Consumer, rounds: int = 6) -> None:
    """All members send heartbeats until the group is stable."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.heartbeat()
        consumers[0].coordinator.pass_time(1.0)
    assert consumers[0].coordinator.describe().state == "Stable"
