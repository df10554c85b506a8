"""Random members, topics and coordinators: no two members own a partition, and in the end every partition is owned."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.consumer_group import ConsumerGroup
from broker.groups.consumer_member import TopicsWanted
from protocol.errors import ErrorCode
from tests.broker.groups.consumers import (
    GROUP,
    Consumer,
    Coordinator,
    Partition,
    Topics,
    send_heartbeats_until_stable,
)

MEMBERS = 5
SESSION_S = 45.0


class Run:
    """Random steps, drawn from a seed. Hypothesis shrinks the number of steps."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics = Topics()
        self.topics.set("t", 4)
        self.coordinator = Coordinator(
            self.topics, group_consumer_assignment_interval_ms=self.rng.choice((0, 1000))
        )
        self.consumers: list[Consumer] = []
        #: When each consumer was last answered. It stops working when its session must be over.
        self.heard: dict[Consumer, float] = {}
        self.count = 0
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        steps = [self.heartbeat] * 14 + [self.join] * 3 + [self.resubscribe, self.wait] * 2
        steps += [
            self.leave,
            self.die,
            self.dawdle,
            self.hurry,
            self.rejoin,
            self.grow,
            self.delete,
            self.fail_over,
        ]
        self.rng.choice(steps)()
        self.check()

    def pick(self) -> Consumer | None:
        return self.rng.choice(self.consumers) if self.consumers else None

    def join(self) -> None:
        if len(self.consumers) < MEMBERS:
            self.count += 1
            names, regex = self.topics_wanted()
            consumer = Consumer(
                self.coordinator,
                f"m{self.count}",
                *names,
                regex=regex,
                instance_id=f"i{self.count}" if self.rng.random() < 0.3 else None,
                assignor=self.rng.choice((None, "range", "uniform")),
                rebalance_timeout_ms=self.rng.choice((8_000, 60_000)),
            )
            self.consumers.append(consumer)
            self.beat(consumer)

    def topics_wanted(self) -> TopicsWanted:
        return self.rng.choice(((), ("t",), ("t", "u"), ("u",))), self.rng.choice(("", "", "t|u", "u.*"))

    def resubscribe(self) -> None:
        if consumer := self.pick():
            names, regex = self.topics_wanted()
            consumer.subscribe(*names, regex=regex)
            self.beat(consumer)

    def rejoin(self) -> None:
        if consumer := self.pick():
            consumer.join_again()
            self.beat(consumer)

    def heartbeat(self) -> None:
        if consumer := self.pick():
            self.beat(consumer)

    def beat(self, consumer: Consumer) -> None:
        lost = self.rng.random() < 0.1
        before = consumer.epoch
        answer = consumer.heartbeat(lose_answer=lost)
        if answer.error != ErrorCode.NONE:
            assert answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID), answer
            return
        assert answer.member_epoch >= before or before == 0, "member epochs only rise"
        self.heard[consumer] = self.coordinator.now

    def leave(self) -> None:
        if consumer := self.pick():
            self.consumers.remove(consumer)
            answer = consumer.leave(-2 if consumer.instance_id and self.rng.random() < 0.7 else -1)
            if consumer.instance_id and answer.error == ErrorCode.NONE and answer.member_epoch == -2:
                self.count += 1
                member_id = self.rng.choice((consumer.member_id, f"m{self.count}"))
                names, regex = self.rng.choice(
                    ((consumer.topics, consumer.regex or ""), self.topics_wanted())
                )
                self.consumers.append(
                    Consumer(
                        self.coordinator, member_id, *names, regex=regex, instance_id=consumer.instance_id
                    )
                )

    def die(self) -> None:
        """Nobody gets its partitions until its session is over."""
        if consumer := self.pick():
            self.consumers.remove(consumer)

    def dawdle(self) -> None:
        if consumer := self.pick():
            consumer.is_slow = True

    def hurry(self) -> None:
        for consumer in self.consumers:
            if consumer.is_slow:
                consumer.is_slow = False
                consumer.has_revoked = consumer.has_revoked or not consumer.owned <= consumer.wanted
                consumer.owned = set(consumer.wanted)

    def grow(self) -> None:
        name = self.rng.choice(("t", "u"))
        topic = self.topics.image.topic_named(name)
        self.topics.set(name, self.rng.randint(1, 3) if topic is None else len(topic.partitions) + 1)

    def delete(self) -> None:
        name = self.rng.choice(("t", "u"))
        if self.topics.image.topic_named(name) is not None:
            self.topics.delete(name)

    def fail_over(self) -> None:
        """The next coordinator has the same durable state."""
        before = self.durable()
        self.coordinator.fail_over()
        assert self.durable() == before

    def durable(self) -> dict[str, object]:
        group = self.coordinator.shard.groups.get(GROUP)
        return vars(group._durable) if isinstance(group, ConsumerGroup) else {}

    def wait(self) -> None:
        self.coordinator.pass_time(self.rng.choice((0.5, 3.0, 20.0)))

    def check(self) -> None:
        now = self.coordinator.now
        working: dict[Partition, str] = {}
        for consumer in self.consumers:
            if (
                consumer.member_id not in self.coordinator.members
                or now >= self.heard.get(consumer, 0) + SESSION_S
            ):
                continue  # It was removed, and learns of it with its next heartbeat.
            for partition in consumer.owned:
                assert working.setdefault(partition, consumer.member_id) == consumer.member_id
        described = self.coordinator.describe() if self.coordinator.members else None
        if described is not None:
            assert described.epoch >= self.epochs.get("group", 0), "group epochs only rise"
            self.epochs["group"] = described.epoch
            durable = self.coordinator.group._durable
            assert durable.regexes.keys() <= {member.subscription.topic_regex for member in described.members}
            assert durable.targets.keys() <= durable.members.keys()


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_one_owner_per_partition_and_an_even_end_whatever_members_do(seed: int, steps: int) -> None:
    run = Run(seed)
    for _ in range(steps):
        run.step()
    run.hurry()
    while not run.consumers:
        run.join()
    for _ in range(14):  # Dead members are removed meanwhile.
        for consumer in run.consumers:
            consumer.heartbeat()
        run.coordinator.pass_time(5)
    send_heartbeats_until_stable(*run.consumers)
    topics = run.topics.image.topics
    for consumer in run.consumers:
        assert all(wants(consumer, topics[topic_id].name) for topic_id, _ in consumer.owned)
    owned = [partition for consumer in run.consumers for partition in consumer.owned]
    wanted = [topic for topic in topics.values() if any(wants(each, topic.name) for each in run.consumers)]
    assert len(owned) == len(set(owned)) == sum(len(topic.partitions) for topic in wanted)


def wants(consumer: Consumer, topic: str) -> bool:
    return topic in consumer.topics or bool(consumer.regex and re.fullmatch(consumer.regex, topic))
