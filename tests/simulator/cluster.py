"""A whole cluster in one simulated world: real `broker.node.Node`s, told apart by nothing from production."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import structlog

from broker.compaction.inline_cleaner import InlineCleaner
from broker.config.node_config import Address, Listener, NodeConfig
from broker.config.values import INT32_MAX
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.metadata.image import MetadataImage
from broker.node import Node
from broker.replication.replica import Replica
from broker.security.cluster_secret import ClusterSecret
from broker.security.proofs import Authenticator
from storage.journal_records import Bounds
from storage.log_types import GroupKey
from storage.partition_folder import folder_name
from storage.segment_files import SNAPSHOT_SUFFIX
from tests.simulator.clock import SimulatedClock
from tests.simulator.damage import Damage
from tests.simulator.disk import DiskFaults, MemoryDisk
from tests.simulator.invariants.equal_transactions import aborted_of, check_equal
from tests.simulator.loop import SimulatedLoop, SimulationError, new_loop
from tests.simulator.network import MemoryNetwork, Mend
from tests.simulator.observer import NodeObserver
from tests.simulator.oracle import Oracle
from tests.simulator.process import NodeProcess

CLIENT_PORT = 9092
PEER_PORT = 9093
#: How long a supervisor waits, on average, before it starts again what has ended.
RESTART_S = 0.3
#: What all nodes know.
SECRET = ClusterSecret(b"the secret of all simulated nodes")
METADATA_KEY = GroupKey(METADATA_TOPIC_ID, 0)

#: Tiny, so that segments roll every virtual second (style.md section 3.2, rule 5).
TINY = NodeConfig(
    log_min_free_bytes=0,
    log_segment_bytes=4096,
    metadata_log_segment_bytes=4096,
    log_index_interval_bytes=256,
    log_retention_check_interval_ms=1000,
    leader_imbalance_check_interval_s=1,
    log_retention_ms=-1,
    offsets_topic_num_partitions=2,
    # Nothing expires: clocks jump by months, and a group that is gone may begin with its first generation again.
    offsets_retention_check_interval_ms=INT32_MAX,
    # Longer than a round trip to a client. A loop that waits reads its clock some 40 times.
    commit_delay_us=2000,
    group_initial_rebalance_delay_ms=100,
    group_min_session_timeout_ms=100,
    consumer_session_timeout_ms=1000,
    consumer_heartbeat_interval_ms=100,
    consumer_assignment_interval_ms=200,
    transaction_topic_num_partitions=2,
    transaction_topic_segment_bytes=4096,
    compaction_initial_delay_ms=500,
    compaction_interval_ms=300,
    cleaner_backoff_ms=500,
    # The plan of a seed says whether replicas are compared.
    verify_interval_ms=0,
)


def host_of(node_id: int) -> str:
    return f"n{node_id}"


class SimulatedCluster:
    """Nodes 1 to `size`, each on a machine with a disk and a clock that survive it."""

    def __init__(self, rng: random.Random, *, size: int = 3, config: NodeConfig = TINY) -> None:
        self.loop: SimulatedLoop = new_loop()
        self.network = MemoryNetwork(self.loop, random.Random(rng.getrandbits(64)))
        self.node_ids = list(range(1, size + 1))
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, MemoryDisk] = {}
        self.oracle = Oracle(self.disks)
        for node_id in self.node_ids:
            self._new_disk(node_id, random.Random(rng.getrandbits(64)))
        self.clocks = {
            node_id: SimulatedClock(self.loop, skew_ms=rng.randrange(-500, 500)) for node_id in self.node_ids
        }
        self._rng = rng
        #: Of the nodes that start from now on.
        self.config = config
        self._dark: set[int] = set()
        #: Of each life: its SIGTERM, whether that was sent, and a key for every fault that wants it paused.
        self._sigterm: dict[NodeProcess, asyncio.Event] = {}
        self._stopping: dict[NodeProcess, None] = {}
        self._pauses: dict[NodeProcess, dict[object, None]] = {}
        #: From now on nothing more goes wrong: demands of liveness hold.
        self.is_healed = False
        #: What `after` has set, until it happens.
        self._later: dict[object, asyncio.TimerHandle] = {}
        self.damage = Damage(self)
        self.oracle.may_be_corrupt = self.damage.may_have_served_corruption
        self.oracle.compaction.bounds_now = self._bounds_now
        self.loop.ends_process = self._ends_process

    def config_of(self, node_id: int) -> NodeConfig:
        host = host_of(node_id)
        return replace(
            self.config,
            node_id=node_id,
            quorum_voters={other: Address(host_of(other), PEER_PORT) for other in self.node_ids},
            listeners=(Listener("PLAINTEXT", host, CLIENT_PORT), Listener("CONTROLLER", host, PEER_PORT)),
            log_dir=self.disks[node_id].root,
        )

    # -- lives -----------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.node_ids:
            self._start(node_id)

    def _start(self, node_id: int) -> None:
        host = host_of(node_id)
        if node_id in self._dark:
            self._dark.discard(node_id)
            self.network.power_on(host)
        process = self.loop.start_process(host)
        process.at_exit.append(lambda: self._gone(node_id, process))
        rng = random.Random(self._rng.getrandbits(64))

        def fail(error: BaseException) -> None:
            if not self._ends_process(process, error):
                raise SimulationError(f"node {node_id} fails, and no fault explains it: {error!r}") from error
            process.die()

        async def run() -> None:
            observer = NodeObserver(self.oracle, self.damage)
            node = observer.node = Node(
                self.config_of(node_id),
                self.disks[node_id],
                self.network.of(host),
                self.clocks[node_id],
                rng,
                Authenticator(SECRET, random.Random(rng.getrandbits(64)).randbytes),
                fail,
                InlineCleaner(self.disks[node_id]),
                observer,
            )
            self.nodes[node_id] = node
            await _serve(node, stopping)

        stopping = self._sigterm[process] = asyncio.Event()
        task = process.create_task(run())
        task.add_done_callback(_raise_failure, context=process.new_context())
        # It came to its own end: the kernel closes its sockets.
        task.add_done_callback(lambda _: self._exited(process), context=self.loop.world.new_context())

    def process(self, node_id: int) -> NodeProcess:
        """Of a node that is alive."""
        process = self.loop.process(host_of(node_id))
        assert process is not None, f"node {node_id} is dead"
        return process

    def _ends_process(self, process: NodeProcess, error: BaseException) -> bool:
        """A node ends by itself, if a fault explains it; a supervisor starts it again."""
        node_id = next((x for x in self.node_ids if host_of(x) == process.name), None)
        if node_id is None or not self.damage.explains(node_id, error):
            return False
        self.loop.trace.note(self.loop.time(), process.label, f"fails: {error}")
        self.kill(node_id)
        self.start_later(node_id, self._rng.expovariate(1 / RESTART_S))
        return True

    def start_later(self, node_id: int, delay_s: float) -> None:
        """Unless somebody else has until then."""

        def start() -> None:
            if not self.is_alive(node_id):
                self._start(node_id)

        self.loop.call_later(delay_s, start, context=self.loop.world.new_context())

    def is_alive(self, node_id: int) -> bool:
        return self.loop.process(host_of(node_id)) is not None

    def alive(self) -> list[int]:
        return [node_id for node_id in self.node_ids if self.is_alive(node_id)]

    def kill(self, node_id: int) -> None:
        """kill -9: the page cache survives."""
        self.loop.kill(self.process(node_id))

    def _gone(self, node_id: int, process: NodeProcess) -> None:
        """However a life ended."""
        node = self.nodes.pop(node_id, None)
        if node is not None and hasattr(node, "replicas"):
            self.oracle.compaction.leaves(node.journal, node.replicas.by_key)
        self.oracle.node_gone(node_id)
        self._pauses.pop(process, None)
        self._stopping.pop(process, None)
        del self._sigterm[process]

    def stop(self, node_id: int) -> None:
        """SIGTERM: it hands its leaderships over and ends by itself, some time later; a paused one does so when it is
        resumed."""
        process = self.process(node_id)
        self._stopping[process] = None
        self.loop.call_soon(self._sigterm[process].set, context=process.new_context())

    def is_stopping(self, node_id: int) -> bool:
        return self.is_alive(node_id) and self.process(node_id) in self._stopping

    def _exited(self, process: NodeProcess) -> None:
        if process.alive:
            self.loop.kill(process)

    def cut_power(self, node_id: int) -> None:
        """The machine goes dark in the middle of whatever it does; peers see silence."""
        self.network.power_off(host_of(node_id))
        self._dark.add(node_id)
        self.kill(node_id)
        self.disks[node_id].crash()

    def wipe(self, node_id: int) -> None:
        """The volume of a dead node is replaced by an empty one."""
        assert not self.is_alive(node_id)
        faults = self.disks[node_id].faults
        rng = random.Random(self._rng.getrandbits(64))
        self._new_disk(node_id, rng, faults)
        self.oracle.nodes.disk_lost(node_id)

    def _new_disk(self, node_id: int, rng: random.Random, faults: DiskFaults | None = None) -> None:
        disk = self.disks[node_id] = MemoryDisk(f"/{host_of(node_id)}", self.loop, rng, faults)
        disk.on_failure = lambda process, error: self.oracle.nodes.disk_failures.told(
            process, error, self.loop.time()
        )

    def pause(self, node_id: int) -> Mend:
        """SIGSTOP. Returns what ends this pause: the process goes on when no other one is left."""
        process = self.process(node_id)
        if process not in self._pauses:
            self.loop.pause(process)
        key = object()
        self._pauses.setdefault(process, {})[key] = None

        def mend() -> None:
            keys = self._pauses.get(process, {})
            if key in keys:
                del keys[key]
                if not keys:
                    self._resume(process)

        return mend

    def _resume(self, process: NodeProcess) -> None:
        del self._pauses[process]
        self.loop.resume(process)

    def isolate(self, node_id: int) -> Mend:
        """From its peers; clients still reach it."""
        return self.network.partition(
            [host_of(node_id)], [host_of(other) for other in self.node_ids if other != node_id]
        )

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Do this later, unless everything was healed by then: how faults end, and go on."""

        key = object()

        def run() -> None:
            del self._later[key]
            action()

        self._later[key] = self.loop.call_later(delay_s, run, context=self.loop.world.new_context())

    def heal(self) -> None:
        """All faults end, also those that had more to come: every node runs, every link works, every disk is quick,
        every clock is right."""
        self.is_healed = True
        for handle in self._later.values():
            handle.cancel()
        self._later.clear()
        self.network.heal_all()
        for process in list(self._pauses):
            self._resume(process)
        for node_id in self.node_ids:
            self.disks[node_id].mend()
            self.clocks[node_id].correct()
            if self.is_stopping(node_id):
                self.kill(node_id)  # as a supervisor does that has waited for long enough
            elif self.is_alive(node_id) and self.disks[node_id].has_lost_folders:
                self.kill(node_id)  # it would end by itself, at a moment of its own
            if not self.is_alive(node_id):
                self._start(node_id)

    # -- looking ---------------------------------------------------------------------------------------------

    def replica(self, node_id: int, topic: str, partition: int = 0) -> Replica | None:
        node = self.nodes.get(node_id)
        if node is None or not hasattr(node, "replicas"):
            return None
        return node.replicas.by_name.get((topic, partition))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The node that serves the partition, -1 aside: of several that think so, the one of the highest term."""
        found = [
            (replica.group.term, node_id)
            for node_id in self.alive()
            if (replica := self.replica(node_id, topic, partition)) is not None and replica.is_serving
        ]
        return max(found)[1] if found else None

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        self.loop.run_until(condition, limit_s)

    def newest_image(self) -> MetadataImage | None:
        """The metadata of the running node that has read the most of it; None if none has read any."""
        images = (node.metadata.image for node in self.nodes.values() if node.ready.is_set())
        return max(images, key=lambda image: image.end_offset, default=None)

    def hosted(self) -> dict[GroupKey, tuple[int, ...]]:
        """Every partition that metadata knows of, and the nodes that it is assigned to; empty until a node
        is up that has read it. All voters hold the metadata log itself."""
        newest = self.newest_image()
        if newest is None:
            return {}
        found = {METADATA_KEY: tuple(self.node_ids)}
        for topic in newest.topics.values():
            for number, partition in enumerate(topic.partitions):
                found[GroupKey(topic.topic_id, number)] = partition.replicas
        return found

    def holders(self, key: GroupKey) -> dict[int, Replica]:
        """Who has a replica of it, by node."""
        return {
            node_id: node.replicas.by_key[key]
            for node_id, node in self.nodes.items()
            if hasattr(node, "replicas") and key in node.replicas.by_key
        }

    def _bounds_now(self, key: GroupKey) -> Iterator[Bounds]:
        """As the running nodes that have a replica know them."""
        for node_id in self.holders(key):
            state = self.nodes[node_id].journal.state(key)
            if state is not None and state.bounds is not None:
                yield state.bounds

    def newest_term(self, key: GroupKey) -> int:
        """The highest term that any running node knows of."""
        return max((replica.group.term for replica in self.holders(key).values()), default=0)

    def are_equal(self) -> bool:
        """Every partition is held by exactly the nodes that should, and all of it is committed on each of them."""
        if not all(node_id in self.nodes and self.nodes[node_id].ready.is_set() for node_id in self.node_ids):
            return False
        for key, target in self.hosted().items():
            replicas = self.holders(key)
            if replicas.keys() != set(target) or not self._has_reached_target(key, target):
                return False
            if len({(r.log.end_index, r.log.start_offset) for r in replicas.values()}) != 1:
                return False
            if any(r.high_watermark != r.log.end_offset for r in replicas.values()):
                return False
            if not self._is_stable(key, replicas):
                return False
        return True

    def have_no_open_transactions(self) -> bool:
        """Once nobody writes any more and all is committed: everything is stable, on each replica. The last stable
        offset does not tell of an open transaction whose records are deleted."""
        return all(
            replica.producers.first_open_offset is None
            and replica.last_stable_offset == replica.high_watermark
            for key in self.hosted()
            for replica in self.holders(key).values()
        )

    def _has_reached_target(self, key: GroupKey, target: tuple[int, ...]) -> bool:
        """The current members are the target, and metadata knows that: there is no learner, and no other node has a
        folder."""
        replicas = self.holders(key)
        for node_id, node in self.nodes.items():
            topic = node.metadata.image.topics.get(key.topic_id)
            if topic is not None and topic.partitions[key.partition].is_reassigning:
                return False
            if node_id in replicas:
                voters, learners = replicas[node_id].group.configuration
                if learners or {voter.node_id for voter in voters} != set(target):
                    return False
            elif topic is not None:
                disk = self.disks[node_id]
                if disk.exists(f"{disk.root}/{folder_name(topic.name, key.partition)}"):
                    return False
        return True

    def _is_stable(self, key: GroupKey, replicas: dict[int, Replica]) -> bool:
        """Its members are those that hold it, under the identities that they have now, on sound files."""
        members = {replica.group.self_id for replica in replicas.values()}
        return all(
            replica.group.configuration == replica.group.committed_configuration
            and set(replica.group.configuration.members) == set(replica.group.configuration.voters) == members
            and not any(
                not path.endswith(SNAPSHOT_SUFFIX) for path in self.damage.corrupt_parts(node_id, key)
            )
            for node_id, replica in replicas.items()
        )

    def _assert_same_contents(self, key: GroupKey) -> None:
        """The same rows, and the same bytes, unless compaction has written some of them anew."""
        replicas = self.holders(key)
        rows = {node_id: repr(_rows_of(replica)) for node_id, replica in replicas.items()}
        assert len(set(rows.values())) == 1, (key, rows)
        if not self.oracle.compaction.is_rewritten(key):
            contents = {node_id: _batches_of(replica) for node_id, replica in replicas.items()}
            assert len(set(contents.values())) == 1, (key, {k: len(v) for k, v in contents.items()})

    def assert_whole(self) -> None:
        """After everything healed, and `are_equal`: the same everywhere, and all that was ever promised."""
        for node_id, node in self.nodes.items():
            assert node.metadata.image.contradictions == 0, f"node {node_id} has read contradicting metadata"
        compaction = self.oracle.compaction
        for key in self.hosted():
            self._assert_same_contents(key)
            replicas = self.holders(key)
            for replica in replicas.values():
                self.oracle.acknowledged.check_replica(replica)
            aborted = {
                node_id: self.process(node_id).call(aborted_of, replica)
                for node_id, replica in replicas.items()
            }
            check_equal(replicas, aborted, is_compacted=compaction.is_rewritten(key))
            is_internal = next(iter(replicas.values())).topic.startswith("__")
            # Of what is as it was written there is nothing more to say.
            if compaction.is_rewritten(key) or (compaction.is_compacted(key) and not is_internal):
                compaction.check_healed(key, replicas, aborted)

    def scan(self) -> None:
        """Every replica's own invariants, log matching between all of them, and that failed disks ended their nodes."""
        self.oracle.nodes.disk_failures.scan(self.loop.time())
        for node_id in self.alive():
            node = self.nodes.get(node_id)
            if node is not None and hasattr(node, "replicas"):
                for replica in list(node.replicas.by_key.values()):
                    self.oracle.scan(replica, node.journal)
                    self.oracle.nodes.scan(replica, node.journal)

    def client_hosts(self) -> list[str]:
        """Machines that are not nodes, once they have sent something."""
        nodes = {host_of(node_id) for node_id in self.node_ids}
        return [host for host in self.network.hosts() if host not in nodes]

    def describe(self) -> list[str]:
        """Who leads what, for reports."""
        return [
            f"node {node_id} {r.topic}-{r.partition}: {r.group.role.name} of term {r.group.term}, commit "
            f"{r.group.commit_end}, end {r.log.end_index}, log start {r.log.start_offset}"
            for key in self.hosted()
            for node_id, r in self.holders(key).items()
        ]

    def close(self) -> None:
        self.loop.close()


def _batches_of(replica: Replica) -> bytes:
    """From its log start on."""
    return b"".join(bytes(stored.view()) for stored in replica.log.batches(replica.log.start_offset))


def _rows_of(replica: Replica) -> list[tuple[object, ...]]:
    return [(row.index, row.term, row.offset, int(row.kind), row.payload) for row in replica.log.lineage.rows]


async def _serve(node: Node, stopping: asyncio.Event) -> None:
    """A node's life as `broker.main` leads it: until SIGTERM, which may come in the middle of its start."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(node.start())
    stop_wanted = loop.create_task(stopping.wait())
    await asyncio.wait((starting, stop_wanted), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await stop_wanted
    else:
        starting.cancel()
    await node.stop()


def _raise_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()


@contextmanager
def captured_logs(loop: SimulatedLoop) -> Iterator[list[str]]:
    """The nodes' own log lines, with virtual time, in place of the terminal's."""
    lines: list[str] = []

    def keep(_: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        lines.append(f"{loop.time():.6f} {level} {event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    try:
        yield lines
    finally:
        structlog.configure(**before)
