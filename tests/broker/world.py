"""Whole nodes in a simulated world: three by default, each with a memory disk, on one memory network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn
from uuid import UUID

from broker.compaction.inline_cleaner import InlineCleaner
from broker.config.sources import load
from broker.membership.identity import RestartError
from broker.metadata.ids import METADATA_TOPIC_NAME
from broker.metadata.records import TopicRecord
from broker.node import Node
from broker.replication.replica import Replica
from broker.security.cluster_secret import ClusterSecret
from broker.security.proofs import Authenticator
from protocol.controller.request import Request, ResultT
from protocol.controller.topics import CreateTopics, DeleteTopics, NewTopic, TopicSetting
from protocol.errors import KafkaError
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from tests.simulator.clock import SimulatedClock
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.simulator.network import MemoryNetwork
from tests.simulator.process import NodeProcess

#: What all nodes know.
SECRET = ClusterSecret(b"the secret of this world")
#: Virtual seconds within which anything that works must have happened.
LIMIT_S = 30.0


class World:
    """The machines. A node is named by its id; `nodes` holds those that run."""

    def __init__(
        self, size: int, seed: int, settings: Mapping[str, str], secret: ClusterSecret = SECRET
    ) -> None:
        self._rng = random.Random(seed)
        self._settings = settings
        self.loop = new_loop()
        self.network = MemoryNetwork(self.loop, self._new_rng())
        self.ids = range(1, size + 1)
        self.disks = {node_id: self._new_disk(node_id) for node_id in self.ids}
        self.nodes: dict[int, Node] = {}
        self.processes: dict[int, NodeProcess] = {}
        self.starts: dict[int, asyncio.Task[None]] = {}
        #: With which the nodes prove themselves from their next start on.
        self.secrets = dict.fromkeys(self.ids, secret)

    def _new_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def _new_disk(self, node_id: int) -> MemoryDisk:
        return MemoryDisk(f"/n{node_id}", self.loop, self._new_rng())

    # -- lives ---------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> Node:
        """Begin the node's start; `wait_ready` waits for its end."""
        voters = ",".join(f"{other}@n{other}:9093" for other in self.ids)
        flags = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://n{node_id}:9092,CONTROLLER://n{node_id}:9093",
            "controller.quorum.voters": voters,
            "log.dirs": f"/n{node_id}",
            **self._settings,
        }
        config = load(flags=flags).config
        process = self.loop.start_process(f"n{node_id}")

        def fail(error: BaseException) -> NoReturn:
            if isinstance(error, RestartError):
                self.kill(node_id)
                self.loop.call_soon(self.start, node_id, context=self.loop.world.new_context())
            process.die()

        node = process.call(
            lambda: _make(
                self.loop,
                lambda: Node(
                    config,
                    self.disks[node_id],
                    self.network.of(f"n{node_id}"),
                    SimulatedClock(self.loop),
                    self._new_rng(),
                    Authenticator(self.secrets[node_id], self._new_rng().randbytes),
                    fail,
                    InlineCleaner(self.disks[node_id]),
                ),
            )
        )
        self.starts[node_id] = process.create_task(node.start())
        self.processes[node_id] = process
        self.nodes[node_id] = node
        return node

    def start_all(self) -> None:
        for node_id in self.ids:
            self.start(node_id)
        self.wait_ready()

    def wait_ready(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            self.wait(self.nodes[node_id].ready.is_set)

    def stop(self, node_id: int) -> None:
        """SIGTERM, to its end."""
        task = self.processes[node_id].create_task(self.nodes[node_id].stop())
        self.wait(task.done)
        task.result()
        self.loop.kill(self.processes.pop(node_id))
        del self.nodes[node_id]

    def kill(self, node_id: int, *, power: bool = False) -> None:
        """kill -9; with `power` its disk forgets what was not flushed, too."""
        self.loop.kill(self.processes.pop(node_id))
        del self.nodes[node_id]
        if power:
            self.disks[node_id].crash()

    def wipe(self, node_id: int) -> None:
        assert node_id not in self.nodes
        self.disks[node_id] = self._new_disk(node_id)

    def wait(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        self.loop.run_until(condition, limit_s=limit_s)

    # -- the cluster ---------------------------------------------------------------------------------------

    def ask(self, node_id: int, request: Request[ResultT]) -> ResultT:
        """Ask the controller through a node. Raises KafkaError where the request as a whole is refused."""
        answers: list[ResultT | KafkaError] = []
        node = self.nodes[node_id]
        self.processes[node_id].call(node.controller.call, request, answers.append)
        self.wait(lambda: bool(answers))
        answer = answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 3,
        via: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicRecord:
        """Create it, and wait until every running node has its replicas."""
        topic = NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            settings=[TopicSetting(name=key, value=value) for key, value in (configs or {}).items()],
        )
        via = next(iter(self.nodes)) if via is None else via
        answer = self.ask(via, CreateTopics(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        self.wait(lambda: all(x.metadata.image.topic_named(name) is not None for x in self.nodes.values()))
        record = self.nodes[via].metadata.image.topic_named(name)
        assert record is not None
        return record

    def delete_topic(self, name: str) -> None:
        node_id = next(iter(self.nodes))
        answer = self.ask(node_id, DeleteTopics(topic_ids=[self.topic_id(node_id, name)]))
        assert answer.topics[0].error_code == 0, answer
        self.wait(lambda: all(x.metadata.image.topic_named(name) is None for x in self.nodes.values()))

    def topic_id(self, node_id: int, name: str) -> UUID:
        """What this node takes for it: nodes differ while one has not heard that it was created again."""
        topic = self.nodes[node_id].metadata.image.topic_named(name)
        assert topic is not None
        return topic.topic_id

    def replica(self, node_id: int, name: str, partition: int = 0) -> Replica:
        return self.nodes[node_id].replicas.by_name[name, partition]

    def recorded_end(self, node_id: int, name: str, partition: int = 0) -> int:
        """What the journal calls durable."""
        state = self.nodes[node_id].journal.state(self.replica(node_id, name, partition).key)
        assert state is not None and state.flushed_end is not None
        return state.flushed_end.end_offset

    def leader(self, name: str, partition: int = 0) -> int:
        """Wait for a leader that serves; its node id."""
        found: list[int] = []

        def look() -> bool:
            for node_id, node in self.nodes.items():
                replica = node.replicas.by_name.get((name, partition))
                if replica is not None and replica.is_serving and replica.group.can_propose:
                    found[:] = [node_id]
                    return True
            return False

        self.wait(look)
        return found[0]

    def voters(self, name: str, partition: int = 0) -> list[tuple[int, bytes, int]]:
        """The voters as the leader has them; nobody while there is none. Never waits."""
        for node in self.nodes.values():
            replica = node.replicas.by_name.get((name, partition))
            if name == METADATA_TOPIC_NAME:
                replica = node.metadata.replica
            if replica is not None and replica.is_serving:
                return sorted(
                    (voter.node_id, voter.directory_id, voter.incarnation)
                    for voter in replica.group.configuration.voters
                )
        return []

    def append(
        self, node_id: int, name: str, *values: bytes | None, partition: int = 0, key: bytes | None = None
    ) -> tuple[int, int]:
        """Append one batch at this leader. Returns its base offset and its end offset."""
        replica = self.replica(node_id, name, partition)
        batch = build_batch([NewRecord(key, value, self.nodes[node_id].clock.now_ms()) for value in values])
        base_offset, end_offset = self.processes[node_id].call(replica.append, parse_header(batch), batch)
        return int(base_offset), int(end_offset)

    def produce(self, name: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> int:
        """Append one batch at the leader and wait until it is committed. Returns its base offset."""
        node_id = self.leader(name, partition)
        replica = self.replica(node_id, name, partition)
        base_offset, end_offset = self.append(node_id, name, *values, partition=partition, key=key)
        self.wait(lambda: replica.high_watermark >= end_offset)
        return base_offset

    def content(self, node_id: int, name: str, partition: int = 0) -> bytes:
        """What clients may read of one node's replica, as it lies in the log."""
        replica = self.replica(node_id, name, partition)
        parts, offset = [], replica.log.start_offset
        while offset < replica.high_watermark:
            part = replica.log.read(offset, 1 << 20, below_offset=replica.high_watermark)
            assert part is not None
            parts.append(bytes(part.view()))
            offset = part.next_offset
        return b"".join(parts)

    def wait_equal(self, name: str, partition: int = 0) -> None:
        """Wait until all three replicas show the same records."""
        leader = self.leader(name, partition)

        def equal() -> bool:
            wanted = self.replica(leader, name, partition).high_watermark
            replicas = [node.replicas.by_name.get((name, partition)) for node in self.nodes.values()]
            return all(replica is not None and replica.high_watermark == wanted for replica in replicas)

        self.wait(equal)
        contents = {self.content(node_id, name, partition) for node_id in self.nodes}
        assert len(contents) == 1

    def folders(self, node_id: int, prefix: str) -> list[str]:
        disk = self.disks[node_id]
        return [name for name in disk.list(disk.root) if name.startswith(prefix)]


def _make(loop: asyncio.AbstractEventLoop, make: Callable[[], Node]) -> Node:
    """`Node` takes the running loop; the harness calls this outside of the loop's callbacks, too."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        return make()
    finally:
        asyncio._set_running_loop(before)


@contextmanager
def running(
    size: int = 3,
    seed: int = 1,
    settings: Mapping[str, str] | None = None,
    secret: ClusterSecret = SECRET,
) -> Iterator[World]:
    """A world with a cluster that is ready."""
    world = World(size, seed, settings or {}, secret)
    try:
        world.start_all()
        yield world
    finally:
        world.loop.close()


@contextmanager
def empty(size: int = 3, seed: int = 1) -> Iterator[World]:
    """A world whose machines are off."""
    world = World(size, seed, {})
    try:
        yield world
    finally:
        world.loop.close()
