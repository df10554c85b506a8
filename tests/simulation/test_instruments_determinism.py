"""One seed, one world: the same trace in two interpreters that hash strings differently.

The world: three nodes pass numbers around by TCP, flush each to disk, are paused, killed, cut and restarted.
`python -m tests.simulation.test_instruments_determinism SEED` prints its digest.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from storage.disk import DiskError
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.simulator.network import MemoryNetwork
from tests.simulator.process import NodeProcess

NODES = ("n1", "n2", "n3")
VIRTUAL_S = 5.0


class _Forwarder(asyncio.BufferedProtocol):
    """Every eight bytes received are written to disk, and sent on when they are durable."""

    def __init__(self, node: _RingNode) -> None:
        self._node = node
        self._buffer = bytearray(64)
        self._partial = bytearray()
        self.lost = asyncio.Event()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self._partial += self._buffer[:nbytes]
        while len(self._partial) >= 8:
            number = int.from_bytes(self._partial[:8], "big")
            del self._partial[:8]
            self._node.take(number)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class _RingNode:
    def __init__(self, name: str, disk: MemoryDisk, network: MemoryNetwork) -> None:
        self._name = name
        self._disk = disk
        self._network = network.of(name)
        self._file = disk.open(f"{disk.root}/log", create=True)
        self._next: asyncio.WriteTransport | None = None

    async def run(self) -> None:
        self._disk.lock()
        await self._network.listen("", 9000, lambda: _Forwarder(self))
        successor = NODES[(NODES.index(self._name) + 1) % len(NODES)]
        while True:
            link = _Forwarder(self)
            try:
                async with asyncio.timeout(0.5):
                    self._next = await self._network.connect(successor, 9000, lambda link=link: link)  # type: ignore[misc]
            except (OSError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            self._send(0)
            await link.lost.wait()

    def take(self, number: int) -> None:
        data = number.to_bytes(8, "big")
        self._file.append([data])
        self._disk.flush([self._file], lambda error: self._durable(error, number))

    def _durable(self, error: DiskError | None, number: int) -> None:
        assert error is None
        self._send(number + 1)

    def _send(self, number: int) -> None:
        if self._next is not None:
            self._next.write(number.to_bytes(8, "big"))


def run_world(seed: int) -> tuple[str, int]:
    """The digest of a world and its number of callbacks."""
    rng = random.Random(seed)
    loop = new_loop()
    network = MemoryNetwork(loop, random.Random(rng.getrandbits(64)))
    disks = {name: MemoryDisk(f"/{name}", loop, random.Random(rng.getrandbits(64))) for name in NODES}

    def start(name: str) -> None:
        process = loop.start_process(name)
        process.create_task(process.call(_RingNode, name, disks[name], network).run())

    def living() -> list[NodeProcess]:
        return [process for name in NODES if (process := loop.process(name)) is not None]

    for name in NODES:
        start(name)
    end_s = loop.time() + VIRTUAL_S
    while loop.time() < end_s:
        loop.run_for(rng.random() * 0.3)
        victim = rng.choice(living())
        fault = rng.randrange(4)
        if fault == 0:
            loop.kill(victim)
            if rng.random() < 0.5:
                disks[victim.name].crash()
            loop.run_for(rng.random() * 0.1)
            start(victim.name)
        elif fault == 1:
            loop.pause(victim)
            loop.run_for(rng.random() * 0.1)
            loop.resume(victim)
        elif fault == 2:
            network.cut(victim.name, rng.choice(NODES))
        else:
            network.heal_all()
    for name in NODES:
        for path in disks[name].list(f"/{name}"):
            loop.trace.note(loop.time(), name, f"{path} {disks[name].durable_contents(f'/{name}/{path}')!r}")
    digest, events = loop.trace.digest(), loop.trace.events
    loop.close()
    return digest, events


def _in_another_interpreter(seed: int, hash_seed: int) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "tests.simulation.test_instruments_determinism", str(seed)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return result.stdout


def test_the_same_seed_is_the_same_world_whatever_the_hash_seed() -> None:
    first = _in_another_interpreter(seed=7, hash_seed=1)
    assert first == _in_another_interpreter(seed=7, hash_seed=4242)
    assert int(first.split()[1]) > 5000, "a world in which something happens"


def test_worlds_in_one_process_do_not_touch_each_other_and_seeds_differ() -> None:
    assert run_world(3) == run_world(3)
    assert run_world(3)[0] != run_world(4)[0]


if __name__ == "__main__":
    started_s = time.perf_counter()
    digest, events = run_world(int(sys.argv[1]))
    print(digest, events)
    print(f"{events / (time.perf_counter() - started_s):,.0f} callbacks/s", file=sys.stderr)
