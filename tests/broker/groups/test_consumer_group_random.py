"""Whatever members, topics and coordinators do: no two members work on one partition, and in the end all is even."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from tests.broker.groups.consumers import Consumer, Coordinator, Partition, Topics, settle

MEMBERS = 5
SESSION_S = 45.0


class Run:
    """Random steps, drawn from a seed: hypothesis shrinks the number of steps."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics = Topics()
        self.topics.set("t", 4)
        self.coordinator = Coordinator(
            self.topics, group_consumer_assignment_interval_ms=self.rng.choice((0, 1000))
        )
        self.consumers: list[Consumer] = []
        #: When each consumer was last answered; it stops working when its session must be over.
        self.heard: dict[Consumer, float] = {}
        self.count = 0
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        steps = [self.heartbeat] * 12 + [self.join] * 3
        steps += [
            self.leave,
            self.die,
            self.dawdle,
            self.hurry,
            self.grow,
            self.fail_over,
            self.wait,
            self.wait,
        ]
        self.rng.choice(steps)()
        self.check()

    def pick(self) -> Consumer | None:
        return self.rng.choice(self.consumers) if self.consumers else None

    def join(self) -> None:
        if len(self.consumers) < MEMBERS:
            self.count += 1
            static = f"i{self.count}" if self.rng.random() < 0.3 else None
            names = self.rng.choice((("t",), ("t", "u"), ("u",)))
            consumer = Consumer(self.coordinator, f"m{self.count}", *names, instance_id=static)
            self.consumers.append(consumer)
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
                back = Consumer(
                    self.coordinator, f"m{self.count}", *consumer.topics, instance_id=consumer.instance_id
                )
                self.consumers.append(back)

    def die(self) -> None:
        """Its partitions are nobody's until its session is over."""
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

    def fail_over(self) -> None:
        self.coordinator.fail_over()

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
                continue  # it was put out, and learns of it with its next heartbeat
            for partition in consumer.owned:
                assert working.setdefault(partition, consumer.member_id) == consumer.member_id
        described = self.coordinator.describe() if self.coordinator.members else None
        if described is not None:
            assert described.epoch >= self.epochs.get("group", 0), "group epochs only rise"
            self.epochs["group"] = described.epoch


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_random_lives(seed: int, steps: int) -> None:
    run = Run(seed)
    for _ in range(steps):
        run.step()
    run.hurry()
    while not run.consumers:
        run.join()
    for _ in range(12):  # the dead are put out meanwhile
        for consumer in run.consumers:
            consumer.heartbeat()
        run.coordinator.pass_time(5)
    settle(*run.consumers)
    owned = [partition for consumer in run.consumers for partition in consumer.owned]
    wanted = {name for consumer in run.consumers for name in consumer.topics}
    topics = [topic for topic in run.topics.image.topics.values() if topic.name in wanted]
    assert len(owned) == len(set(owned)) == sum(len(topic.partitions) for topic in topics)
