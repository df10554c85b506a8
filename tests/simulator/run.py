"""One seed: a cluster, its clients and its faults; first safety, then, healed, liveness (style.md section 3.2)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulator.client import Client
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, captured_logs, host_of
from tests.simulator.workload import Producer, Reader, create_topic

TOPIC = "t"
#: Virtual seconds of faults, and the time by which a healed cluster must have done all its work.
FAULTS_S = 6.0
HEALED_LIMIT_S = 60.0
#: How often the logs are compared as a whole; roles and commits are looked at when they happen.
SCAN_S = 0.1
LAST_LOG_LINES = 60


@dataclass
class Result:
    seed: int
    mix: list[str]
    digest: str = ""
    events: int = 0
    acknowledged: int = 0
    read: int = 0
    elapsed_s: float = 0.0
    failure: BaseException | None = None
    log_lines: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"seed {self.seed}: {'FAILED' if self.failure else 'ok'}, {self.acknowledged} acknowledged, "
            f"{self.read} read, {self.events} events, {self.events / max(self.elapsed_s, 1e-9):,.0f}/s, "
            f"digest {self.digest[:12]}, faults: {', '.join(self.mix) or 'none'}"
        )

    def report(self) -> str:
        """Everything that is needed to begin looking for the cause."""
        return "\n".join(
            [
                self.line(),
                *self.log_lines[-LAST_LOG_LINES:],
                f"repeat it: scripts/simulate --seed {self.seed}",
            ]
        )


class Simulation:
    def __init__(self, seed: int, *, mix: list[str] | None = None, lying: bool = False) -> None:
        self.rng = random.Random(seed)
        self.cluster = SimulatedCluster(self.rng)
        for disk in self.cluster.disks.values():
            disk.faults.done_before_durable = lying
            disk.faults.flush_mean_extra_s = 0.05 if lying else 0.000_4
        chosen = [name for name in FAULTS if self.rng.random() < 0.5]
        self.mix = chosen if mix is None else mix
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self._work: asyncio.Task[None] | None = None
        #: They read for ever; one that is done has found something.
        self._reading: list[asyncio.Task[None]] = []

    def run(self) -> None:
        cluster, rng = self.cluster, self.rng
        cluster.start()
        client = cluster.loop.start_process("client")
        self._work = client.create_task(self._clients())
        end_s = cluster.loop.time() + FAULTS_S
        while cluster.loop.time() < end_s:
            self._run_for(rng.expovariate(1 / 0.4))
            if self.mix:
                FAULTS[rng.choice(self.mix)](self)
        self._settle()

    def _settle(self) -> None:
        cluster = self.cluster
        assert self._work is not None
        cluster.heal()
        end_s = cluster.loop.time() + HEALED_LIMIT_S
        while not (self._work.done() and cluster.are_equal()):
            errors = [f"{producer.producer_id}: {producer.last_error}" for producer in self.producers]
            assert cluster.loop.time() < end_s, f"no progress after healing; {errors}, {cluster.describe()}"
            self._run_for(SCAN_S)
        self._work.result()
        cluster.assert_same_bytes()
        for node_id in cluster.node_ids:
            for replica in cluster.nodes[node_id].replicas.by_key.values():
                cluster.oracle.acknowledged.check_replica(replica)

    def _run_for(self, seconds: float) -> None:
        """Run, and compare all logs every now and then."""
        end_s = self.cluster.loop.time() + seconds
        while (left_s := end_s - self.cluster.loop.time()) > 0:
            self.cluster.loop.run_for(min(SCAN_S, left_s))
            self.cluster.scan()
            for task in (self._work, *self._reading):
                if task is not None and task.done():
                    task.result()

    async def _clients(self) -> None:
        loop = asyncio.get_running_loop()
        cluster, rng = self.cluster, random.Random(self.rng.getrandbits(64))
        bootstrap = [(host_of(node_id), CLIENT_PORT) for node_id in cluster.node_ids]
        network = cluster.network.of("client")
        partitions = rng.randint(1, 3)
        await create_topic(Client(network, bootstrap), TOPIC, partitions)
        for partition in range(partitions):
            reader = Reader(Client(network, bootstrap), cluster.oracle, TOPIC, partition)
            self.readers.append(reader)
            self._reading.append(loop.create_task(reader.run()))
            self.producers.append(
                Producer(
                    Client(network, bootstrap), cluster.oracle, rng, TOPIC, partition, rng.randint(20, 120)
                )
            )
        await asyncio.gather(*(producer.run() for producer in self.producers))

    # -- faults ----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        if alive := self.cluster.alive():
            victim = self.rng.choice(alive)
            self.cluster.kill(victim)
            self._restart_later(victim)

    def power(self) -> None:
        if alive := self.cluster.alive():
            for victim in self.rng.sample(alive, self.rng.randint(1, len(alive))):
                self.cluster.cut_power(victim)
                self._restart_later(victim)

    def _restart_later(self, node_id: int) -> None:
        def restart() -> None:
            if not self.cluster.is_alive(node_id):
                self.cluster.start(node_id)

        self.cluster.loop.call_later(self.rng.expovariate(1 / 0.5), restart)

    def pause(self) -> None:
        if alive := self.cluster.alive():
            victim = self.rng.choice(alive)
            self.cluster.pause(victim)
            self.cluster.loop.call_later(self.rng.expovariate(1 / 0.8), self.cluster.resume, victim)

    def cut(self) -> None:
        one, other = self.rng.sample(self.cluster.node_ids, 2)
        self.cluster.network.cut(host_of(one), host_of(other))
        if self.rng.random() < 0.5:
            self.cluster.network.cut(host_of(other), host_of(one))
        self.cluster.loop.call_later(self.rng.expovariate(1 / 1.0), self.cluster.network.heal_all)

    def isolate(self) -> None:
        self.cluster.isolate(self.rng.choice(self.cluster.node_ids))
        self.cluster.loop.call_later(self.rng.expovariate(1 / 1.5), self.cluster.network.heal_all)

    def stall(self) -> None:
        one, other = self.rng.sample(self.cluster.node_ids, 2)
        link = self.cluster.network.link(host_of(one), host_of(other))
        link.stall()
        self.cluster.loop.call_later(self.rng.expovariate(1 / 0.5), link.unstall)

    def slow_disk(self) -> None:
        faults = self.cluster.disks[self.rng.choice(self.cluster.node_ids)].faults
        faults.slow_factor = 200.0 if faults.slow_factor == 1.0 else 1.0

    def reset(self) -> None:
        one, other = self.rng.sample(self.cluster.node_ids, 2)
        self.cluster.network.reset(host_of(one), host_of(other))


FAULTS: dict[str, Callable[[Simulation], None]] = {
    "kill": Simulation.kill,
    "power": Simulation.power,
    "pause": Simulation.pause,
    "cut": Simulation.cut,
    "isolate": Simulation.isolate,
    "stall": Simulation.stall,
    "slow disk": Simulation.slow_disk,
    "reset": Simulation.reset,
}


def simulate(seed: int, *, mix: list[str] | None = None, lying: bool = False) -> Result:
    started_s = time.perf_counter()
    simulation = Simulation(seed, mix=mix, lying=lying)
    cluster = simulation.cluster
    result = Result(seed, simulation.mix)
    with captured_logs(cluster.loop) as lines:
        try:
            simulation.run()
        except Exception as failure:
            result.failure = failure
        result.log_lines = list(lines)
        result.digest = cluster.loop.trace.digest()
        result.events = cluster.loop.trace.events
        result.acknowledged = cluster.oracle.acknowledged.count
        result.read = sum(reader.batches_read for reader in simulation.readers)
        try:
            cluster.close()
        except Exception as failure:
            result.failure = result.failure or failure
    result.elapsed_s = time.perf_counter() - started_s
    return result
