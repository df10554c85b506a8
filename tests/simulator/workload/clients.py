"""All clients of one run: who they are, and when their work is done."""

from __future__ import annotations

import asyncio
import random
from functools import partial

from broker.replication.replica import Replica
from storage.log_types import GroupKey
from tests.simulator.client import Client, Leader
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, host_of
from tests.simulator.workload.administrator import Administrator
from tests.simulator.workload.consumers import Consumer
from tests.simulator.workload.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulator.workload.members import Auditor, Committer, Group, Member
from tests.simulator.workload.offsets import Lister
from tests.simulator.workload.plain_producer import PlainProducer
from tests.simulator.workload.plan import (
    GroupPlan,
    ProducerPlan,
    TopicPlan,
    TransactionalPlan,
    Workload,
)
from tests.simulator.workload.producer import Producer
from tests.simulator.workload.purger import Purger
from tests.simulator.workload.reader import Follower, Rereader
from tests.simulator.workload.stale import DeposedLeader, StaleClient
from tests.simulator.workload.topics import create_topic, recreate_topic
from tests.simulator.workload.transactional import Job, TransactionalProducer, run_job
from tests.simulator.workload.view_reader import ViewReader

#: How many readers want what is committed.
COMMITTED_SHARE = 0.7
#: Virtual seconds until the last producer comes that takes a transactional id over.
LAST_START_S = 3.0


class Clients:
    """They live in a process of their own, on a machine without faults."""

    def __init__(self, cluster: SimulatedCluster, plan: Workload, *, replicas_stay: bool) -> None:
        """`replicas_stay`: nobody moves a partition or gives it more replicas than it was created with."""
        self._cluster = cluster
        self._plan = plan
        self._replicas_stay = replicas_stay
        self._rng = random.Random(plan.seed)
        self._network = cluster.network.of("client")
        self._producers: list[Producer | PlainProducer] = []
        self._consumers: list[Member | Consumer | Committer] = []
        self._transactional: list[TransactionalProducer] = []
        self._followers: list[Follower] = []
        self._rereaders: list[Rereader] = []
        self._view_readers: list[ViewReader] = []
        self._administrators: list[Administrator] = []
        #: They go on for ever; one that is done has found something.
        self._endless: list[asyncio.Task[None]] = []
        self._work = cluster.loop.start_process("client").create_task(self._run())

    @property
    def is_done(self) -> bool:
        """Everything that was to be written is acknowledged, refused or given up."""
        return self._work.done()

    @property
    def batches_read(self) -> int:
        return sum(
            reader.batches_read for reader in (*self._followers, *self._rereaders, *self._view_readers)
        )

    def check(self) -> None:
        """Raise what a client found."""
        for task in (self._work, *self._endless):
            if task.done():
                task.result()

    def has_read_all(self) -> bool:
        """Once all is done: every reader that keeps something reached the end of its partition."""
        leaders = self._leaders()
        return all(
            (leader := leaders.get(reader.partition)) is not None and reader.has_view_of(leader)
            for reader in self._view_readers
        ) and all(
            (leader := leaders.get(follower.partition)) is not None
            and follower.has_read_to(leader.key, leader.high_watermark)
            for follower in self._followers
        )

    def check_all_seen(self) -> None:
        """... and has seen what was promised; and what administrators were promised is so."""
        for administrator in self._administrators:
            administrator.check(self._cluster)
        leaders = self._leaders()
        for follower in self._followers:
            leader = leaders[follower.partition]
            follower.check_all_seen(leader.key, leader.log.start_offset)
        for reader in self._view_readers:
            reader.check_view(leaders[reader.partition])
        self._cluster.oracle.transactions.check_all_ended(self._cluster.hosted())
        self._cluster.oracle.exactly_once.check()

    def _leaders(self) -> dict[tuple[str, int], Replica]:
        replicas = (
            replica for key in self._cluster.hosted() for replica in self._cluster.holders(key).values()
        )
        return {(replica.topic, replica.partition): replica for replica in replicas if replica.is_serving}

    def describe(self) -> list[str]:
        """What each client that has work to do met last, for reports."""
        return [client.describe() for client in (*self._producers, *self._consumers, *self._transactional)]

    def _client(self) -> Client:
        """Each begins with another node."""
        node_ids = self._cluster.node_ids
        first = self._rng.randrange(len(node_ids))
        return Client(
            self._network,
            [(host_of(node_id), CLIENT_PORT) for node_id in (*node_ids[first:], *node_ids[:first])],
        )

    async def _run(self) -> None:
        await asyncio.gather(
            *(self._use(topic) for topic in self._plan.topics),
            self._list(),
            self._ask_deposed_leaders(),
            *(self._consume(group) for group in self._plan.groups),
            *(self._transact(plan) for plan in self._plan.transactional),
        )

    async def _list(self) -> None:
        seed = self._rng.getrandbits(64)
        lister = Lister(self._client(), self._cluster.oracle, self._plan.topics, seed)
        self._endless.append(asyncio.get_running_loop().create_task(lister.run()))

    async def _ask_deposed_leaders(self) -> None:
        stale = StaleClient(
            self._client,
            self._cluster.oracle,
            self._plan.topics,
            partial(deposed_leaders, self._cluster),
            "stale",
            self._rng.getrandbits(64),
        )
        self._endless.append(asyncio.get_running_loop().create_task(stale.run()))

    async def _use(self, topic: TopicPlan) -> None:
        """All that is done with one topic."""
        loop, oracle = asyncio.get_running_loop(), self._cluster.oracle
        rng = random.Random(self._rng.getrandbits(64))
        admin = self._client()
        await create_topic(admin, topic)
        for partition in range(topic.partitions):
            follower = Follower(
                self._client(),
                oracle,
                topic,
                partition,
                sends_last_epoch=rng.random() < 0.5,
                has_session=rng.random() < 0.5,
                isolation=self._isolation(rng),
            )
            self._followers.append(follower)
            self._endless.append(loop.create_task(follower.run()))
        if rng.random() < 0.5:
            partition = rng.randrange(topic.partitions)
            rereader = Rereader(self._client(), oracle, topic, partition, self._isolation(rng))
            self._rereaders.append(rereader)
            self._endless.append(loop.create_task(rereader.run()))
        if topic.is_compacted:
            for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
                view_reader = ViewReader(self._client(), oracle, topic, 0, isolation)
                self._view_readers.append(view_reader)
                self._endless.append(loop.create_task(view_reader.run()))
        if topic.is_purged:
            for partition in range(topic.partitions):
                purger = Purger(
                    self._client(), oracle, topic, partition, self._cluster.newest_term, rng.getrandbits(64)
                )
                self._endless.append(loop.create_task(purger.run()))
        made = [
            self._producer(number, plan)
            for number, plan in enumerate(self._plan.producers)
            if plan.topic == topic
        ]
        self._producers += made
        work = [*(producer.run() for producer in made), recreate_topic(admin, topic, rng.getrandbits(64))]
        if not topic.is_recreated:
            administrator = Administrator(self._client(), oracle, topic, rng.getrandbits(64))
            self._administrators.append(administrator)
            work.append(administrator.run())
        await asyncio.gather(*work)

    def _isolation(self, rng: random.Random) -> int:
        """Most readers want what is committed, where there are transactions."""
        is_committed = rng.random() < COMMITTED_SHARE
        return READ_COMMITTED if is_committed and self._plan.transactional else READ_UNCOMMITTED

    async def _transact(self, plan: TransactionalPlan) -> None:
        """All that is done under one transactional id. Topics may not be there yet: then it waits."""
        oracle, rng = self._cluster.oracle, random.Random(plan.seed)
        job = Job(plan, plan.transactions)
        producers = [
            TransactionalProducer(
                self._client(),
                oracle,
                job,
                f"{plan.transactional_id}/{number}",
                version,
                rng.uniform(0, LAST_START_S) if number else 0.0,
                rng.getrandbits(64),
            )
            for number, version in enumerate(plan.versions)
        ]
        self._transactional += producers
        await run_job(job, producers, oracle)

    async def _consume(self, plan: GroupPlan) -> None:
        """All that is done by one group. Topics may not be there yet: then its commits wait."""
        loop, oracle = asyncio.get_running_loop(), self._cluster.oracle
        rng = random.Random(plan.seed)
        stay = [topic for topic in self._plan.topics if not topic.is_recreated]
        places = [(topic.name, number) for topic in stay for number in range(topic.partitions)]
        auditor = Auditor(self._client(), oracle, rng.getrandbits(64))
        self._endless.append(loop.create_task(auditor.run()))
        group = Group(plan, places)
        kind = Consumer if plan.is_assigned else Member
        consumers: list[Member | Consumer | Committer] = [
            kind(self._client(), oracle, group, f"{plan.name}/{number}", rng.getrandbits(64))
            for number in range(plan.members)
        ]
        if not consumers:
            consumers.append(
                Committer(self._client(), oracle, plan.name, plan, rng.choice(places), rng.getrandbits(64))
            )
        self._consumers += consumers
        await asyncio.gather(*(consumer.run() for consumer in consumers))

    def _producer(self, number: int, plan: ProducerPlan) -> Producer | PlainProducer:
        name = f"{plan.topic.name}-{plan.partition}/{number}"
        client, oracle = self._client(), self._cluster.oracle
        if plan.is_idempotent:
            return Producer(client, oracle, name, plan)
        is_kept = plan.acks == -1 or (self._replicas_stay and plan.topic.replication_factor == 1)
        return PlainProducer(client, oracle, name, plan, is_kept=is_kept)


def deposed_leaders(cluster: SimulatedCluster) -> list[DeposedLeader]:
    """Of each partition, those who take themselves for its leader while there is one of a higher term."""
    serving = [
        (replica, node_id)
        for node_id, node in cluster.nodes.items()
        if hasattr(node, "replicas")
        for replica in node.replicas.by_name.values()
        if replica.is_serving
    ]
    newest: dict[GroupKey, Leader] = {}
    for replica, node_id in serving:
        leader = Leader(node_id, replica.group.term, replica.key)
        newest[replica.key] = max(newest.get(replica.key, leader), leader, key=lambda known: known.epoch)
    return [
        DeposedLeader(replica.topic, Leader(node_id, replica.group.term, replica.key), newest[replica.key])
        for replica, node_id in serving
        if replica.group.term < newest[replica.key].epoch
    ]
