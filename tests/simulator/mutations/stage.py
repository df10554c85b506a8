"""A cluster without random faults, for stories: whoever tells one decides what happens, and everything that the oracle
knows is checked meanwhile, and after everything healed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from broker.replication.replica import Replica
from protocol.api_keys import ApiKey
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from protocol.controller.request import Request, ResultT
from protocol.controller.topics import (
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    NewTopic,
    ReplicaAssignment,
    TopicSetting,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from raft.types import Configuration
from tests.simulator.client import Client, Connection
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, host_of
from tests.simulator.invariants.acknowledged_never_lost import Acknowledged
from tests.simulator.network import Mend

_T = TypeVar("_T")

TOPIC = "s"
#: Virtual seconds within which anything that works must have happened.
LIMIT_S = 30.0
#: How often the logs are compared as a whole.
SCAN_S = 0.1
ELECTION_TIMEOUT_S = 1.0
PRODUCER_ID = 1_000_000
#: Of what may get lost: what is not acknowledged and not sent again would be a gap in another's sequence.
CARELESS = 2_000_000
LATEST, EARLIEST = -1, -2


class Part(NamedTuple):
    """What a broker says of a partition."""

    error: ErrorCode
    high_watermark: int
    log_start: int


class Stage:
    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.rng = rng
        self.topic = TOPIC
        #: Of topics that are created from now on.
        self.settings: Sequence[TopicSetting] = ()
        #: Nodes that this story cut off from the others.
        self._cut_off: dict[int, None] = {}
        #: Of each producer: the sequence of its next record.
        self._sequences: dict[int, int] = {}
        #: Records of a topic of the same name are others.
        self._topics_made = 0
        self._client_process = self.loop.start_process("storyteller")
        self._client = Client(cluster.network.of("storyteller"), [])

    # -- time ----------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Until it holds; every turn is looked at, and all logs every now and then. Raises SimulationTimeoutError: a
        story that gets stuck proves nothing."""
        if not self.waited(condition, limit_s):
            self.loop.run_until(condition, 0.0)

    def waited(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """... or until the time is over: whether it holds."""
        end_s = self.loop.time() + limit_s
        while not condition():
            if self.loop.time() >= end_s:
                return False
            self.loop.run_until(_either(condition, self.loop.time, SCAN_S), SCAN_S * 2)
            self.cluster.scan()
        return True

    def run_for(self, seconds: float) -> None:
        end_s = self.loop.time() + seconds
        while (left_s := end_s - self.loop.time()) > 0:
            self.loop.run_for(min(SCAN_S, left_s))
            self.cluster.scan()

    # -- the cluster ---------------------------------------------------------------------------------------

    def ready(self, *node_ids: int) -> None:
        """Wait until these nodes (all, by default) serve clients."""
        wanted = node_ids or self.cluster.node_ids
        self.wait(lambda: all(n in self.cluster.nodes and self._is_ready(n) for n in wanted))

    def _is_ready(self, node_id: int) -> bool:
        return self.cluster.nodes[node_id].ready.is_set()

    def start(self, *node_ids: int) -> None:
        """... and wait until they serve clients."""
        self.cluster.start(*node_ids)
        self.ready(*node_ids)

    def call(self, node_id: int, function: Callable[..., _T], *args: Any) -> _T:
        """As this node."""
        process = self.loop.process(host_of(node_id))
        assert process is not None
        return process.call(function, *args)

    def ask_controller(self, via: int, request: Request[ResultT]) -> ResultT:
        """Raises KafkaError where the request as a whole is refused."""
        answers: list[ResultT | KafkaError] = []
        self.call(via, self.cluster.nodes[via].controller.call, request, answers.append)
        self.wait(lambda: bool(answers))
        answer = answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def create_topic(self, *, replicas: tuple[int, ...] = ()) -> None:
        """One partition, on these nodes (the first three, by default); wait until every running node has heard."""
        self._sequences.clear()
        self._topics_made += 1
        answers = self.begin_topic(self._any_node(), replicas)
        self.wait(partial(bool, answers))
        while isinstance(answer := answers[0], KafkaError):
            self.run_for(0.1)  # the controller is changing
            answers = self.begin_topic(self._any_node(), replicas)
            self.wait(partial(bool, answers))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self.wait(lambda: all(self._knows_topic(node_id) for node_id in self._reachable()))
        self.leader()

    def begin_topic(self, via: int, replicas: tuple[int, ...] = ()) -> list[CreateTopicsResult | KafkaError]:
        """Ask for it through a node. The answer comes into the list."""
        nodes = ReplicaAssignment(partition=0, node_ids=list(replicas or self.cluster.node_ids[:3]))
        topic = NewTopic(name=self.topic, assignments=[nodes], settings=list(self.settings))
        request = CreateTopics(topics=[topic])
        answers: list[CreateTopicsResult | KafkaError] = []
        self.call(via, self.cluster.nodes[via].controller.call, request, answers.append)
        return answers

    def begin_reassigning(self, *node_ids: int) -> None:
        """Have the partition on these nodes, the preferred leader first."""
        target = ReassignedPartition(topic=self.topic, partition=0, node_ids=list(node_ids))
        answer = self.ask_controller(self.leader(), ReassignPartitions(partitions=[target]))
        assert not any(item.error_code for item in answer.partitions), answer

    def delete_topic(self) -> None:
        """... and wait until every node that is not cut off has heard."""
        via = self._any_node()
        answer = self.ask_controller(via, DeleteTopics(topic_ids=[self._topic_id(via)]))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self.wait(lambda: not any(self._knows_topic(node_id) for node_id in self._reachable()))

    def _any_node(self) -> int:
        return self._reachable()[0]

    def _reachable(self) -> list[int]:
        """Nodes that run and reach a controller."""
        return [
            node_id
            for node_id, node in self.cluster.nodes.items()
            if node_id not in self._cut_off and node.ready.is_set()
        ]

    def _knows_topic(self, node_id: int) -> bool:
        return self.cluster.nodes[node_id].metadata.image.topic_named(self.topic) is not None

    def _topic_id(self, node_id: int) -> UUID:
        topic = self.cluster.nodes[node_id].metadata.image.topic_named(self.topic)
        assert topic is not None
        return topic.topic_id

    def replica(self, node_id: int) -> Replica:
        found = self.cluster.replica(node_id, self.topic)
        assert found is not None, f"node {node_id} has no replica"
        return found

    def leader(self) -> int:
        """Wait for one that takes writes; its node."""
        self.wait(lambda: self.leader_now() is not None)
        found = self.leader_now()
        assert found is not None
        return found

    def leader_now(self) -> int | None:
        serving = [
            (replica.group.term, node_id)
            for node_id in self.cluster.alive()
            if (replica := self.cluster.replica(node_id, self.topic)) is not None
            and replica.is_serving
            and replica.group.can_propose
        ]
        return max(serving)[1] if serving else None

    def leads(self, node_id: int) -> bool:
        """Whether it thinks so."""
        replica = self.cluster.replica(node_id, self.topic)
        return replica is not None and replica.is_leader

    def delete_below(self, offset: int) -> None:
        """As retention or DeleteRecords do, on the leader, where it is durable then."""
        leader = self.leader()
        replica = self.replica(leader)
        self.cluster.oracle.deletions.asked(replica.key, offset)
        self.call(leader, replica.log_start.delete_records, offset)
        self.wait(lambda: replica.log.start_offset == offset)

    def propose(self, configuration: Configuration, node_id: int | None = None) -> None:
        """A change of members, by the leader. Raises ProposalRefusedError."""
        leader = self.leader() if node_id is None else node_id
        replica = self.replica(leader)
        out = self.call(leader, replica.group.propose_configuration, configuration, self.loop.time())
        self.call(leader, replica.driver.carry_out, out)

    def change(self, configuration: Configuration) -> None:
        """... and wait until it is committed."""
        self.propose(configuration)
        group = self.replica(self.leader()).group
        self.wait(lambda: group.commit_end > group.configuration_index and group.can_propose)

    def followers(self) -> list[int]:
        """The other replicas' nodes, in an order of the seed's."""
        leader = self.leader()
        others = [v.node_id for v in self.replica(leader).group.configuration.voters if v.node_id != leader]
        self.rng.shuffle(others)
        return others

    def lead(self, node_id: int) -> None:
        """Have this node lead, by transfers of the leadership, as many as it takes."""

        def transfer_leadership() -> bool:
            leader = self.leader_now()
            if leader is None or leader == node_id:
                return leader == node_id
            replica, target = self.replica(leader), self.cluster.replica(node_id, self.topic)
            if target is not None and target.group.self_id in replica.group.in_sync(self.loop.time(), 1.0):
                self.call(leader, replica.driver.transfer_leadership, target.group.self_id)
            return False

        self.wait(transfer_leadership)

    def lead_elsewhere_than_the_controller(self) -> int:
        """Have the topic led by a node that does not lead the metadata."""
        controller = self.cluster.nodes[self.leader()].leaders.controller_id()
        if self.leader() == controller:
            self.lead(self.followers()[0])
        return self.leader()

    def everybody_has_all(self) -> None:
        """Wait until the replicas of the running nodes agree, commit index included."""

        def agree() -> bool:
            found = [self.cluster.replica(node_id, self.topic) for node_id in self._reachable()]
            replicas = [replica for replica in found if replica is not None]
            return len({(r.log.end_index, r.group.commit_end) for r in replicas}) == 1 and all(
                r.group.commit_end == r.log.end_index for r in replicas
            )

        self.leader()
        self.wait(agree)

    # -- faults --------------------------------------------------------------------------------------------

    def isolate(self, node_id: int) -> None:
        """From its peers; clients still reach it."""
        self._cut_off[node_id] = None
        self.cluster.isolate(node_id)

    def cut(self, source: int, target: int) -> None:
        """One way."""
        self.cluster.network.cut(host_of(source), host_of(target))

    def disconnect(self, node_id: int) -> Callable[[int], None]:
        """From its peers, and all of them know it at once: connections are reset, and dials refused. Returns what ends
        that for one of them."""
        self._cut_off[node_id] = None
        network, host = self.cluster.network, host_of(node_id)
        mends: dict[int, Mend] = {}
        for other in self.cluster.node_ids:
            if other != node_id:
                mends[other] = network.refuse_all([(host, host_of(other)), (host_of(other), host)])
                network.reset(host, host_of(other))
                network.reset(host_of(other), host)
        return lambda other: mends[other]()

    def join(self, one: int, other: int) -> None:
        """Two that were cut off hear each other again, and nobody else."""
        self.cluster.network.heal(host_of(one), host_of(other))
        self.cluster.network.heal(host_of(other), host_of(one))

    def heal(self) -> None:
        """All links."""
        self._cut_off.clear()
        self.cluster.network.heal_all()

    # -- clients -------------------------------------------------------------------------------------------

    def append(
        self,
        node_id: int,
        *,
        producer_id: int = PRODUCER_ID,
        sequence: int | None = None,
        size_bytes: int = 10,
    ) -> Written:
        """One record of an idempotent producer, as a leader takes it. Raises KafkaError.

        `sequence`: an earlier one, sent again."""
        if sequence is None:
            sequence = self.sequence_of(producer_id)
            self._sequences[producer_id] = sequence + 1
        batch = build_batch(
            [NewRecord(b"%d" % self._topics_made, b"%0*d" % (size_bytes, sequence), 1)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        header = next(iter_batches(memoryview(batch)))[1]
        replica = self.replica(node_id)
        base_offset, end_offset = self.call(node_id, replica.append, header, batch)
        written = Written(self.cluster, replica, producer_id, sequence, base_offset)
        self.call(node_id, replica.waits.add_in_sync, end_offset, written, 0)
        return written

    def sequence_of(self, producer_id: int) -> int:
        """Of the next record of this producer."""
        return self._sequences.get(producer_id, 0)

    def write(
        self, *, producer_id: int = PRODUCER_ID, sequence: int | None = None, size_bytes: int = 10
    ) -> int:
        """... and as its client sees it: sent again until it is acknowledged. Returns its offset."""
        while True:
            leader = self.leader()
            try:
                written = self.append(
                    leader, producer_id=producer_id, sequence=sequence, size_bytes=size_bytes
                )
            except KafkaError as error:
                if error.code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS):
                    raise
                if sequence is None:
                    sequence = self._sequences[producer_id] - 1
                self.run_for(0.02)
                continue
            self.wait(lambda written=written: written.error is not None)  # type: ignore[misc]
            if written.error is ErrorCode.NONE:
                return written.base_offset
            sequence = written.sequence

    def fetch(self, node_id: int, offset: int = 0) -> Part:
        """Over a client's connection. Raises OSError, TimeoutError."""
        return self.run(self.fetching(node_id, offset))

    async def fetching(self, node_id: int, offset: int = 0) -> Part:
        """`fetch`, to be begun now and looked at later."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1024)
        body = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=self._topic_id(node_id), partitions=[wanted])],
        )
        connection = await self.connection(node_id)
        answer = await connection.request(ApiKey.FETCH, 13, body, FetchResponse)
        part = answer.responses[0].partitions[0]
        return Part(ErrorCode(part.error_code), part.high_watermark, part.log_start_offset)

    def offset_of(self, node_id: int, timestamp: int) -> tuple[ErrorCode, int]:
        """ListOffsets: LATEST or EARLIEST. Raises OSError, TimeoutError."""
        return self.run(self.asking_for(node_id, timestamp))

    async def asking_for(self, node_id: int, timestamp: int) -> tuple[ErrorCode, int]:
        """`offset_of`, to be begun now and looked at later."""
        wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
        body = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])]
        )
        connection = await self.connection(node_id)
        answer = await connection.request(ApiKey.LIST_OFFSETS, 5, body, ListOffsetsResponse)
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.offset

    def new_producer_id(self, node_id: int) -> tuple[ErrorCode, int]:
        """Raises OSError, TimeoutError."""
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        async def ask() -> tuple[ErrorCode, int]:
            connection = await self.connection(node_id)
            answer = await connection.request(ApiKey.INIT_PRODUCER_ID, 4, body, InitProducerIdResponse)
            return ErrorCode(answer.error_code), answer.producer_id

        return self.run(ask())

    async def connection(self, node_id: int) -> Connection:
        """A client's. Raises OSError, TimeoutError."""
        return await self._client.connection((host_of(node_id), CLIENT_PORT))

    def leave_connection(self, connection: Connection) -> None:
        """The client goes on by another one. This one stays open."""
        self._client.leave(connection)

    def begin(self, question: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Ask as a client, without waiting for the answer."""
        return self._client_process.create_task(question)

    def run(self, question: Coroutine[Any, Any, _T]) -> _T:
        task = self.begin(question)
        self.wait(task.done)
        return task.result()


class Written:
    """One record on its way. Implements `broker.replication.waits.Acknowledged`."""

    def __init__(
        self, cluster: SimulatedCluster, replica: Replica, producer_id: int, sequence: int, base_offset: int
    ) -> None:
        self.producer_id = producer_id
        self.sequence = sequence
        self.base_offset = base_offset
        #: The answer; None: none yet.
        self.error: ErrorCode | None = None
        self._cluster = cluster
        self._key = replica.key

    def partition_done(self, slot: int, error_code: ErrorCode) -> None:
        # The client hears it when the turn is over, unless the node dies before.
        self._cluster.loop.call_soon(self._told, ErrorCode(error_code))

    def _told(self, error: ErrorCode) -> None:
        self.error = error
        if self.error is ErrorCode.NONE:
            promise = Acknowledged(self.producer_id, self.sequence, self.base_offset)
            self._cluster.oracle.acknowledged.acknowledged(self._key, self.base_offset, promise)


def tell(cluster: SimulatedCluster, rng: random.Random, story: Callable[[Stage], None]) -> None:
    """Begin with a cluster that is ready, tell the story, heal, and demand that everything is there and equal."""
    cluster.start()
    stage = Stage(cluster, rng)
    stage.ready()
    story(stage)
    demand_progress(stage)


def demand_progress(stage: Stage) -> None:
    """Every fault ends; then everything is there, and equal, within some time."""
    cluster = stage.cluster
    cluster.heal()
    stage.wait(lambda: cluster.are_equal() and cluster.have_no_open_transactions(), 2 * LIMIT_S)
    cluster.assert_whole()


def _either(condition: Callable[[], bool], now: Callable[[], float], seconds: float) -> Callable[[], bool]:
    end_s = now() + seconds
    return lambda: condition() or now() >= end_s
