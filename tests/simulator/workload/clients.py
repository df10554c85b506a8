"""All clients of one run: who they are, and when their work is done."""

from __future__ import annotations

import asyncio
import random

from tests.simulator.client import Client
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, host_of
from tests.simulator.workload.producer import Producer
from tests.simulator.workload.reader import Reader
from tests.simulator.workload.topics import create_topic

TOPIC = "t"


class Clients:
    """They live in a process of their own, on a machine without faults."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._network = cluster.network.of("client")
        self._producers: list[Producer] = []
        self._readers: list[Reader] = []
        #: They read for ever; one that is done has found something.
        self._reading: list[asyncio.Task[None]] = []
        self._work = cluster.loop.start_process("client").create_task(self._run())

    @property
    def is_done(self) -> bool:
        """Everything that was to be written is acknowledged."""
        return self._work.done()

    @property
    def batches_read(self) -> int:
        return sum(reader.batches_read for reader in self._readers)

    def check(self) -> None:
        """Raise what a client found."""
        for task in (self._work, *self._reading):
            if task.done():
                task.result()

    def describe(self) -> list[str]:
        """What each producer met last, for reports."""
        return [f"producer {producer.producer_id}: {producer.last_error}" for producer in self._producers]

    def _client(self) -> Client:
        return Client(self._network, [(host_of(node_id), CLIENT_PORT) for node_id in self._cluster.node_ids])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        oracle, rng = self._cluster.oracle, self._rng
        partitions = rng.randint(1, 3)
        await create_topic(self._client(), TOPIC, partitions)
        for partition in range(partitions):
            reader = Reader(self._client(), oracle, TOPIC, partition)
            self._readers.append(reader)
            self._reading.append(loop.create_task(reader.run()))
            batches = rng.randint(20, 120)
            self._producers.append(Producer(self._client(), oracle, rng, TOPIC, partition, batches))
        await asyncio.gather(*(producer.run() for producer in self._producers))
