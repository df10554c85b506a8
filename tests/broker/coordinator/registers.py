"""A coordinator for tests. It keeps registers: a register is a name and a number.

It runs beside the group coordinator on the nodes of a `World`, and has its own topic. A name that begins with "?" is
written as a record type that its own codec does not know. A name that begins with "~" is written in a record version
that only an upgraded node can decode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.internal_topic import InternalTopic, InternalTopicSpec
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.outcome import Decided, Outcome
from broker.coordinator.records import EncodedRecord, RecordCodec
from broker.coordinator.runtime import CoordinatorRuntime
from broker.coordinator.ticket import Ticket
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE_S
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.control import Marker
from tests.broker.world import World

T = TypeVar("T")
#: The answer of a decision about a register: a number, or the error.
Sum: TypeAlias = int | ErrorCode

TOPIC = "__registers"
PARTITIONS = 2
MAX_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class RegisterRecord:
    name: str
    value: int | None


def _encode(record: RegisterRecord) -> EncodedRecord:
    if "!" in record.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no record can hold this name")
    return record.name.encode(), None if record.value is None else b"%d" % record.value


def _decode(key: memoryview, value: memoryview | None, *, is_upgraded: bool) -> RegisterRecord | None:
    name = bytes(key).decode()
    if name.startswith("?"):
        return None
    if name.startswith("~") and not is_upgraded:
        raise ProtocolError("a record of version 2")
    return RegisterRecord(name, None if value is None else int(bytes(value)))


class RegisterShard:
    """A register expires `lifetime_s` after the last decision about it."""

    def __init__(self, lifetime_s: float) -> None:
        self.values: dict[str, int] = {}
        self.loaded_at: float | None = None
        #: Producer id -> what is pending of its transaction.
        self.pending: dict[int, list[RegisterRecord]] = {}
        #: How many keys each call of `take_due_keys` returned, without calls that returned none.
        self.taken: list[int] = []
        self._lifetime_s = lifetime_s
        self._expires_at: dict[str, float] = {}
        self._deadlines: Deadlines[str] = Deadlines()

    def replay(self, record: RegisterRecord) -> None:
        if record.value is None:
            self.values.pop(record.name, None)
        else:
            self.values[record.name] = record.value

    def replay_pending(self, producer_id: int, record: RegisterRecord) -> None:
        self.pending.setdefault(producer_id, []).append(record)

    def pending_keys(self, producer_id: int) -> Mapping[str, int]:
        return Counter(record.name for record in self.pending.get(producer_id, ()))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        return self._end(self.pending.pop(producer_id, []), is_commit)

    def _end(self, records: list[RegisterRecord], is_commit: bool) -> Iterator[None]:
        for record in records:
            if is_commit:
                self.replay(record)
            yield

    def loaded(self, now: float, now_ms: int) -> Iterator[None]:
        self.loaded_at = now
        for name in self.values:
            self._expires_at[name] = now + self._lifetime_s
            self.update_deadline(name)
            yield

    def update_deadline(self, key: str) -> None:
        self._deadlines.set(key, self._expires_at.get(key) if key in self.values else None)

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def take_due_keys(self, now: float, limit: int) -> list[str]:
        due = self._deadlines.take_due(now, limit)
        if due:
            self.taken.append(len(due))
        return due

    def expire(self, key: str, now: float, now_ms: int) -> Outcome[RegisterRecord]:
        return Outcome([RegisterRecord(key, None)])

    # -- decisions ---------------------------------------------------------------------------------------

    def add(self, ticket: Ticket[Sum], name: str, amount: int, now: float) -> Outcome[RegisterRecord]:
        """Answer: the sum. Raises KafkaError for a sum below 0."""
        total = self.values.get(name, 0) + amount
        if total < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._expires_at[name] = now + self._lifetime_s
        return Outcome([RegisterRecord(name, total)]).add_answer(ticket, total)

    def remove(self, ticket: Ticket[Sum], names: list[str]) -> Outcome[RegisterRecord]:
        """Answer: how many."""
        return Outcome([RegisterRecord(name, None) for name in names]).add_answer(ticket, len(names))

    def increment(self, name: str) -> Outcome[RegisterRecord]:
        return Outcome([RegisterRecord(name, self.values[name] + 1)])


Runtime: TypeAlias = CoordinatorRuntime[RegisterShard, RegisterRecord]


def check_name(name: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a long name")


def register_spec(replication_factor: int = 3) -> InternalTopicSpec:
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    return InternalTopicSpec(TOPIC, PARTITIONS, replication_factor, configs, check_name)


@dataclass
class Registers:
    """The coordinator on one node."""

    topic: InternalTopic
    runtime: Runtime
    #: The partition of every load that was completed.
    loads: list[int] = field(default_factory=list)


class RegisterWorld:
    """The coordinator on all nodes that run."""

    def __init__(self, world: World, lifetime_s: float = 1000.0) -> None:
        self.world = world
        self.lifetime_s = lifetime_s
        #: Node ids. Upgraded nodes decode every record version.
        self.upgraded: set[int] = set()
        self.nodes = {node_id: self.call(node_id, self._attach, node_id) for node_id in world.nodes}

    def call(self, node_id: int, function: Callable[..., T], *arguments: object) -> T:
        return self.world.processes[node_id].call(function, *arguments)

    def _attach(self, node_id: int) -> Registers:
        node = self.world.nodes[node_id]
        spec = register_spec(len(self.world.ids))
        topic = InternalTopic(
            spec, node.metadata, node.controller, node.view.leader_of, node.view.endpoint_of
        )

        def new_shard(_: Replica) -> RegisterShard:
            return RegisterShard(self.lifetime_s)

        def decode(key: memoryview, value: memoryview | None) -> RegisterRecord | None:
            return _decode(key, value, is_upgraded=node_id in self.upgraded)

        codec = RecordCodec(_encode, decode)
        runtime: Runtime = CoordinatorRuntime(
            topic, codec, new_shard, node.clock, node.loop, node.background, node.reads, node.replica_events
        )
        registers = Registers(topic, runtime)
        runtime.on_loaded.append(lambda led: registers.loads.append(led.replica.partition))
        return registers

    def create_topic(self) -> None:
        """Returns when every partition is led and loaded."""
        first = next(iter(self.nodes))
        self.call(first, self.nodes[first].topic.create)
        for partition in range(PARTITIONS):
            self.coordinator(partition)

    def coordinator(self, partition: int, *, other_than: int = -1) -> int:
        """Waits for the node that leads a partition and has loaded it."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [
                node_id
                for node_id in self.world.nodes
                if node_id != other_than and self.led(node_id, partition) is not None
            ]
            return bool(found)

        self.world.wait(look)
        return found[0]

    def led(self, node_id: int, partition: int) -> LedPartition[RegisterShard] | None:
        """None: the node does not lead it, or has not loaded it."""
        for led in self.nodes[node_id].runtime.loaded_partitions():
            if led.replica.partition == partition:
                return led
        return None

    def shard(self, node_id: int, name: str) -> RegisterShard:
        led = self.led(node_id, self.nodes[node_id].topic.partition_of(name))
        assert led is not None
        return led.shard

    def begin_add(self, node_id: int, name: str, amount: int) -> list[Sum]:
        """The list gets the sum, or the error, when it is answered."""
        answers: list[Sum] = []

        def decide(
            shard: RegisterShard, ticket: Ticket[Sum], now: float, now_ms: int
        ) -> Outcome[RegisterRecord]:
            return shard.add(ticket, name, amount, now)

        self.call(node_id, self.nodes[node_id].runtime.ask, name, answers.append, _same, decide)
        return answers

    def begin_adding(self, node_id: int, name: str, amounts: list[int]) -> list[Sum]:
        """Add each of these amounts, in a decision that takes as many steps. The list gets the sum."""
        answers: list[Sum] = []

        def decide(
            shard: RegisterShard, ticket: Ticket[Sum], now: float, now_ms: int
        ) -> Decided[RegisterRecord]:
            total = shard.values.get(name, 0)
            for amount in amounts:
                total += amount
                if total < 0:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                yield
            return Outcome([RegisterRecord(name, total)]).add_answer(ticket, total)

        self.call(node_id, self.nodes[node_id].runtime.ask, name, answers.append, _same, decide)
        return answers

    def begin_remove(self, node_id: int, names: list[str]) -> list[Sum]:
        """Remove all of `names` in one decision, which the shard of the first name makes."""
        answers: list[Sum] = []

        def decide(
            shard: RegisterShard, ticket: Ticket[Sum], now: float, now_ms: int
        ) -> Outcome[RegisterRecord]:
            return shard.remove(ticket, names)

        self.call(node_id, self.nodes[node_id].runtime.ask, names[0], answers.append, _same, decide)
        return answers

    def begin_read(self, node_id: int, name: str) -> list[Sum]:
        """The list gets the value, -1 where there is no such register, or the error."""
        answers: list[Sum] = []
        self.call(node_id, self._read, node_id, name, answers)
        return answers

    def _read(self, node_id: int, name: str, answers: list[Sum]) -> None:
        reading = self.nodes[node_id].runtime.reading()
        reading.add(name)

        def confirmed() -> None:
            if reading.is_busy(name):
                self.world.loop.call_later(PAUSE_S, confirmed)
                return
            try:
                value = reading.shard(name).values.get(name, -1)
            except KafkaError as error:
                answers.append(error.code)
            else:
                reading.wait(lambda: answers.append(reading.error(name) or value))

        reading.confirm(confirmed)

    def answer(self, answers: list[Sum]) -> Sum:
        self.world.wait(lambda: bool(answers))
        (answer,) = answers
        return answer

    def add(self, node_id: int, name: str, amount: int) -> Sum:
        return self.answer(self.begin_add(node_id, name, amount))

    def read(self, node_id: int, name: str) -> Sum:
        return self.answer(self.begin_read(node_id, name))

    def begin_writing_pending(
        self, node_id: int, values: dict[str, int], producer: tuple[int, int], *, steps: int = 0
    ) -> list[Sum]:
        """Write these registers in the transaction of (producer id, epoch), in one decision about the first of them.
        The list gets how many, or the error."""
        answers: list[Sum] = []

        def decide(
            shard: RegisterShard, ticket: Ticket[Sum], now: float, now_ms: int
        ) -> Decided[RegisterRecord]:
            for _ in range(steps):
                yield
            records = [RegisterRecord(name, value) for name, value in values.items()]
            return Outcome(records, producer).add_answer(ticket, len(records))

        self.call(node_id, self.nodes[node_id].runtime.ask, next(iter(values)), answers.append, _same, decide)
        return answers

    def begin_marker(
        self, node_id: int, partition: int, producer: tuple[int, int], *, is_commit: bool
    ) -> list[int | KafkaError]:
        """The list gets the end offset, or the error, when the marker is appended or refused."""
        done: list[int | KafkaError] = []
        replica = self.world.replica(node_id, TOPIC, partition)
        append_marker = self.nodes[node_id].runtime.append_marker
        self.call(node_id, append_marker, replica, *producer, Marker(is_commit, 0), 1, done.append)
        return done


def _same(error: ErrorCode) -> ErrorCode:
    return error
