"""The memory disk and network behave as the real ones, as far as a process can see while nothing fails."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.environment import Network
from broker.network.tcp_network import TcpNetwork
from storage.disk import Disk, DiskError, File
from storage.file_disk import FileDisk
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.simulator.network import MemoryNetwork

_PATHS = ("a", "b", "d/a", "d/b", "e", "e/a")
_OPERATIONS = (
    "open",
    "create",
    "append",
    "write_at",
    "truncate",
    "read",
    "flush",
    "exists",
    "is_directory",
    "list",
    "make_directory",
    "rename",
    "unlink",
    "remove_tree",
    "flush_directory",
)


class _Driver:
    """Runs a list of operations on a disk and writes down what came of each."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, File] = {}

    def run(self, name: str, path: str, other: str, size: int) -> object:
        full, other_full = f"{self._disk.root}/{path}", f"{self._disk.root}/{other}"
        try:
            return self._run(name, full, other_full, size)
        except DiskError as error:
            return type(error).__name__

    def _run(self, name: str, path: str, other: str, size: int) -> object:
        disk = self._disk
        if name in ("open", "create"):
            self._files[path] = disk.open(path, create=name == "create")
            return self._files[path].size
        if name in ("append", "write_at", "truncate", "read", "flush"):
            return self._use(name, self._files.get(path), size)
        if name == "rename":
            return disk.rename(path, other)  # type: ignore[func-returns-value]
        method: Callable[[str], Any] = getattr(disk, name)
        return method(path)

    def _use(self, name: str, file: File | None, size: int) -> object:
        """On a file that was opened earlier, whatever became of its name."""
        if file is None:
            return None
        if name == "append":
            file.append([bytes([size % 256]) * size, b"|"])
        elif name == "write_at" and file.size >= size:
            file.write_at(file.size - size, b"w" * size)
        elif name == "truncate":
            file.truncate(min(size, file.size))
        elif name == "flush":
            file.flush()
        else:
            return bytes(file.read(size // 2, size))
        return bytes(file.read(0, file.size))


@settings(deadline=None, max_examples=200)
@given(
    operations=st.lists(
        st.tuples(
            st.sampled_from(_OPERATIONS),
            st.sampled_from(_PATHS),
            st.sampled_from(_PATHS),
            st.integers(0, 1500),
        ),
        max_size=40,
    )
)
def test_the_memory_disk_answers_as_the_real_one(operations: list[tuple[str, str, str, int]]) -> None:
    loop = new_loop()
    with tempfile.TemporaryDirectory() as root:
        real = FileDisk(root, lambda callback: callback())
        drivers = (_Driver(real), _Driver(MemoryDisk("/data", loop, random.Random(0))))
        for operation in operations:
            found, expected = (driver.run(*operation) for driver in reversed(drivers))
            assert found == expected, operation
        real.close()
    loop.close()


class _Peer(asyncio.BufferedProtocol):
    """Writes down the calls of its transport, and ends as it is told."""

    def __init__(self, greeting: bytes, end: str) -> None:
        self.calls: list[str] = []
        self.received = b""
        self.lost = asyncio.Event()
        self._greeting = greeting
        self._end = end
        self._buffer = bytearray(4096)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines([self._greeting[:3], self._greeting[3:]])

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        if self.received.endswith(b"."):
            if self._end == "close":
                self._transport.write(b"bye")
                self._transport.close()
                self._transport.write(b"ignored")
            elif self._end == "abort":
                self._transport.abort()
            elif self._end == "OSError":
                raise FileNotFoundError("not about this connection")

    def eof_received(self) -> None:
        self.calls.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost" if exc is None else type(exc).__name__)
        assert self._transport.is_closing() and not self._transport.get_write_buffer_size()
        self.lost.set()


async def _conversation(
    network: Network, server_end: str, client_end: str, *, for_peers: bool = False
) -> list[object]:
    """A connects to B, both greet, one of them ends it; then nobody listens any more."""
    server, client = _Peer(b"hello.", server_end), _Peer(b"good day.", client_end)
    listener = await network.listen("localhost", 0, lambda: server, for_peers=for_peers)
    await network.connect("localhost", listener.port, lambda: client)
    await asyncio.wait_for(server.lost.wait(), 5)
    await asyncio.wait_for(client.lost.wait(), 5)
    listener.close()
    try:
        await network.connect("localhost", listener.port, lambda: client)
    except OSError as error:
        refusal = type(error).__name__
    return [server.calls, server.received, client.calls, client.received, refusal]


async def test_connections_open_and_end_as_on_tcp() -> None:
    """An OSError that a protocol raises ends its connection, and nobody is told."""
    for ends in (
        ("close", ""),
        ("", "close"),
        ("abort", ""),
        ("", "abort"),
        ("OSError", ""),
        ("", "OSError"),
    ):
        expected = await _conversation(TcpNetwork(), *ends)
        assert await _conversation(TcpNetwork(), *ends, for_peers=True) == expected, ends
        assert await asyncio.get_running_loop().run_in_executor(None, _simulated, ends) == expected, ends


def _simulated(ends: tuple[str, str]) -> list[object]:
    """In another thread, because a thread has one running loop."""
    loop = new_loop()
    network = MemoryNetwork(loop, random.Random(1))
    try:
        return loop.run_until_complete(_conversation(network.of("n1"), *ends))
    finally:
        loop.close()
