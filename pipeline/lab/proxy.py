"""A proxy in front of each broker, between it and the clients: it delays, throttles, and loses acknowledgements.

A broker tells its clients where it and the others are. The proxy puts its own ports into these answers, so that clients
never pass it by. Brokers reach each other directly, as before. The proxy runs in a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.errors import ClusterUnavailable, PipelineError

_PRODUCE, _METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER = 0, 3, 10, 60
# Answers that tell where brokers are. Produce does since KIP-951, to whoever asked the wrong one. Fetch does, too, but
# is left alone: the same bytes may be in a record.
_TELL_ADDRESSES = frozenset((_PRODUCE, _METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER))
_TIMEOUT_S = 10.0
# Requests of one connection that have been read and wait to be passed on. More of them wait in the sockets.
_MAX_WAITING = 1_000
_MAX_FRAME_BYTES = 256 * 1024 * 1024
_LENGTH = struct.Struct(">i")
# api_key, api_version, correlation_id: the same in every version of the request header.
_REQUEST_HEADER = struct.Struct(">hhi")


@dataclass(slots=True)
class Faults:
    """What befalls the connections to one broker. It may be changed at any time, by any thread."""

    delay_s: float = 0.0
    """Added to each way; a round trip takes twice as much longer."""
    bytes_per_s: float | None = None
    """Of Produce requests, over all connections together, as by a slow disk; None: no limit. What is read from a client
    is passed on in its turn even if the client has gone by then, as a broker works off what is in its sockets."""
    drop_every: int = 0
    """Each n-th answer to a Produce is lost, after the broker gave it, and so is the connection. 0: none."""


@dataclass(slots=True)
class Traffic:
    """What came from clients. `produced_at_s` grows by one for each Produce request: monotonic time at its arrival."""

    produced_at_s: list[float] = field(default_factory=list)
    connected_at_s: list[float] = field(default_factory=list)
    answers_dropped: int = 0


class Proxy:
    """`with Proxy(bootstrap_server) as proxy:` proxies all brokers of a cluster on this machine.

    Raises ClusterUnavailable where none answers, and PipelineError where one has an address on another machine.
    """

    def __init__(self, bootstrap_server: str) -> None:
        self._links = {
            broker_id: _Link(host, port) for broker_id, (host, port) in _brokers(bootstrap_server).items()
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._await(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    @property
    def bootstrap_server(self) -> str:
        return ",".join(f"{link.host}:{link.own_port}" for link in self._links.values())

    def faults(self, broker_id: int) -> Faults:
        """Of the connections to this broker."""
        return self._links[broker_id].faults

    def traffic(self, broker_id: int) -> Traffic:
        return self._links[broker_id].traffic

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._links)

    def set_all(self, *, delay_s: float = 0.0, drop_every: int = 0) -> None:
        """The same faults for the connections to all brokers, from now on."""
        for link in self._links.values():
            link.faults.delay_s = delay_s
            link.faults.drop_every = drop_every

    @property
    def answers_dropped(self) -> int:
        return sum(link.traffic.answers_dropped for link in self._links.values())

    def produced_at_s(self) -> list[float]:
        """Monotonic times at which Produce requests came, to whichever broker, in order."""
        return sorted(at for link in self._links.values() for at in list(link.traffic.produced_at_s))

    async def _start(self) -> None:
        for link in self._links.values():
            await link.listen()
        told = {link.told: link.told_instead for link in self._links.values()}
        for link in self._links.values():
            link.rewritten = told

    def _end(self) -> None:
        self._await(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        for link in self._links.values():
            await link.close()

    def _await(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_TIMEOUT_S)


class _Link:
    """One broker, and the port that stands in front of it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.own_port = 0
        self.faults = Faults()
        self.traffic = Traffic()
        self.rewritten: dict[bytes, bytes] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._paced_until_s = 0.0
        self._answers = 0

    @property
    def told(self) -> bytes:
        """An address as each answer has it: the host's letters and then the port, in all versions."""
        return self.host.encode() + _LENGTH.pack(self.port)

    @property
    def told_instead(self) -> bytes:
        return self.host.encode() + _LENGTH.pack(self.own_port)

    async def listen(self) -> None:
        sockets = _listening_sockets(self.host)
        self.own_port = sockets[0].getsockname()[1]
        for one in sockets:
            self._servers.append(await asyncio.start_server(self._accepted, sock=one))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server runs this as a task"
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        self.traffic.connected_at_s.append(asyncio.get_running_loop().time())
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # by `close`: the server would call it an error of its own
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return  # The broker is down: the client finds its connection closed, as good as refused.
        asked: dict[int, int] = {}
        requests = asyncio.create_task(self._pass_requests(reader, up_writer, asked))
        answers = asyncio.create_task(self._pass_answers(up_reader, writer, asked))
        try:
            # Either side may end first: a client leaves, a broker dies, an answer is dropped.
            await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
            if requests.done() and not answers.done():
                await answers
        finally:
            up_writer.close()
            for task in (requests, answers):
                task.cancel()
            ends = await asyncio.gather(requests, answers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end  # a defect of the proxy: the loop prints it

    async def _pass_requests(
        self, reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        loop = asyncio.get_running_loop()

        def note(frame: bytes) -> bytes:
            api_key, _, correlation_id = _REQUEST_HEADER.unpack_from(frame)
            asked[correlation_id] = api_key
            if api_key == _PRODUCE:
                self.traffic.produced_at_s.append(loop.time())
            return frame

        async def pace(frame: bytes) -> None:
            api_key, _, _ = _REQUEST_HEADER.unpack_from(frame)
            if self.faults.bytes_per_s is None or api_key != _PRODUCE:
                return
            now_s = loop.time()
            begins_s = max(now_s, self._paced_until_s)
            self._paced_until_s = begins_s + len(frame) / self.faults.bytes_per_s
            await asyncio.sleep(self._paced_until_s - now_s)

        await self._relay(reader, up_writer, note, pace, _REQUEST_HEADER.size)
        with suppress(OSError):
            up_writer.write_eof()

    async def _pass_answers(
        self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        def look(frame: bytes) -> bytes | None:
            (correlation_id,) = _LENGTH.unpack_from(frame)
            api_key = asked.pop(correlation_id, None)
            if api_key == _PRODUCE and self._is_to_be_dropped():
                return None
            if api_key in _TELL_ADDRESSES:
                for told, instead in self.rewritten.items():
                    frame = frame.replace(told, instead)
            return frame

        async def at_once(_: bytes) -> None:
            pass

        await self._relay(up_reader, writer, look, at_once, _LENGTH.size)

    def _is_to_be_dropped(self) -> bool:
        if self.faults.drop_every == 0:
            return False
        self._answers += 1
        is_dropped = self._answers % self.faults.drop_every == 0
        self.traffic.answers_dropped += is_dropped
        return is_dropped

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        look: Callable[[bytes], bytes | None],
        pace: Callable[[bytes], Awaitable[None]],
        least_bytes: int,
    ) -> None:
        """Pass frames on, each after its delay, until `reader` ends or `look` gives None."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(_MAX_WAITING)

        async def read() -> None:
            try:
                while (frame := await _read_frame(reader, least_bytes)) is not None:
                    passed_on = look(frame)
                    if passed_on is None:
                        break
                    await waiting.put((loop.time() + self.faults.delay_s, passed_on))
            except Exception:
                await waiting.put(None)
                raise
            # Not where this is cancelled: then nobody takes from the queue any more, and it may be full.
            await waiting.put(None)

        reading = asyncio.create_task(read())
        try:
            while (item := await waiting.get()) is not None:
                due_s, frame = item
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await pace(frame)
                if writer.is_closing():
                    continue
                with suppress(ConnectionError):
                    writer.writelines((_LENGTH.pack(len(frame)), frame))
                    await writer.drain()
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _read_frame(reader: asyncio.StreamReader, least_bytes: int) -> bytes | None:
    """A request or an answer without its length; None where the connection has ended, or something else comes."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if not least_bytes <= length <= _MAX_FRAME_BYTES:
            return None  # not Kafka's protocol
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


def _brokers(bootstrap_server: str) -> dict[int, tuple[str, int]]:
    admin = AdminClient({"bootstrap.servers": bootstrap_server, "log_level": 2})
    try:
        metadata = admin.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterUnavailable(f"no broker answers at {bootstrap_server}: {error}") from error
    found = {broker.id: (str(broker.host), int(broker.port)) for broker in metadata.brokers.values()}
    for host, _ in found.values():
        if not _is_loopback(host):
            raise PipelineError(
                f"a broker advertises {host}: a proxy can only be put in front of brokers that advertise a loopback"
                " address (localhost, 127.0.0.1) on this machine"
            )
    return found


def _is_loopback(host: str) -> bool:
    try:
        infos = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(info[4][0]).is_loopback for info in infos)


def _listening_sockets(host: str) -> list[socket.socket]:
    """One for each address of the host, all with the same port."""
    families = {info[0]: info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    while True:
        made: list[socket.socket] = []
        port = 0
        try:
            for family, address in families.items():
                # The protocol by name: asyncio sets TCP_NODELAY on no other, and 40 ms would come from nowhere.
                one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                made.append(one)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address, port))
                port = one.getsockname()[1]
        except OSError:
            for one in made:
                one.close()
            if port == 0:
                raise
            continue  # Another address of the host has the port in use.
        return made
