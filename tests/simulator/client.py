"""A small Kafka client over our own protocol package: connections, and one request at a time per caller."""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple, TypeVar

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.framing import FrameReader
from protocol.headers import RequestHeader, encode_request_header, parse_response_header
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.schema import Message
from storage.log_types import GroupKey
from tests.simulator.network import NodeNetwork

M = TypeVar("M", bound=Message)

METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 4
#: A client gives up on an answer, and on the connection with it, after this long.
REQUEST_TIMEOUT_S = 2.0
#: Whose coordinator it is (FindCoordinator's key_type).
GROUP, TRANSACTIONAL_ID = 0, 1
MAX_FRAME_BYTES = 1 << 24


class Leader(NamedTuple):
    """Where a partition is served, as far as its client knows."""

    node_id: int
    epoch: int
    key: GroupKey


class Connection(asyncio.BufferedProtocol):
    """Answers by correlation id. A lost connection fails what is open with ConnectionError."""

    def __init__(self) -> None:
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._open: dict[int, asyncio.Future[memoryview]] = {}
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        #: Loop time until which the node has asked for no more requests (KIP-219). It would not read them.
        self._muted_until = 0.0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame, is_own in self._frames.received(nbytes):
            copy = frame if is_own else memoryview(bytes(frame))
            answer = self._open.pop(int.from_bytes(copy[:4], "big"), None)
            if answer is not None and not answer.done():
                answer.set_result(copy)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(ConnectionError("lost"))
        self._open.clear()

    def abort(self) -> None:
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()

    def tell(self, key: ApiKey, version: int, body: Message) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        assert self._transport is not None
        self._next_id += 1
        frame = encode_request_header(RequestHeader(key, version, self._next_id, "sim")) + encode(
            body, version
        )
        self._transport.write(struct.pack(">i", len(frame)) + frame)

    async def request(self, key: ApiKey, version: int, body: Message, response: type[M]) -> M:
        """Raises ConnectionError, TimeoutError. The request is on its way before the first suspension, unless the
        client is throttled."""
        loop = asyncio.get_running_loop()
        if (left_s := self._muted_until - loop.time()) > 0:
            await asyncio.sleep(left_s)
        number = self._next_id + 1
        answer = self._open[number] = loop.create_future()
        self.tell(key, version, body)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                received = await answer
        except TimeoutError:
            self.abort()
            raise
        finally:
            self._open.pop(number, None)
        _, position = parse_response_header(key, version, received)
        decoded = decode(response, version, received, position)[0]
        throttle_ms: int = getattr(decoded, "throttle_time_ms", 0)
        self._muted_until = max(self._muted_until, loop.time() + throttle_ms / 1000)
        return decoded


class Client:
    """Finds leaders by Metadata from any node that answers, as real clients do."""

    def __init__(self, network: NodeNetwork, bootstrap: list[tuple[str, int]]) -> None:
        self._network = network
        self._bootstrap = bootstrap
        self._connections: dict[tuple[str, int], Connection] = {}
        self._turn = 0
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        #: The newest leader epoch that was seen of each partition: older answers are old (Java's Metadata).
        self._epochs: dict[GroupKey, int] = {}

    async def connection(self, address: tuple[str, int]) -> Connection:
        """Raises OSError, TimeoutError."""
        known = self._connections.get(address)
        if known is not None and not known.is_lost:
            return known
        made = Connection()
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            await self._network.connect(*address, lambda: made)
        return self._connections.setdefault(address, made) if known is None else self._replace(address, made)

    def _replace(self, address: tuple[str, int], made: Connection) -> Connection:
        self._connections[address] = made
        return made

    def learn_address(self, node_id: int, address: tuple[str, int]) -> None:
        """As metadata told at some time."""
        self._addresses[node_id] = address

    def learn_leader(self, topic: str, leader: Leader) -> None:
        """As metadata told at some time."""
        self._leaders[topic, leader.key.partition] = leader

    async def broker(self, node_id: int) -> Connection:
        return await self.connection(self._addresses[node_id])

    async def any_broker(self) -> Connection:
        """The next one in turn."""
        self._turn += 1
        return await self.connection(self._bootstrap[self._turn % len(self._bootstrap)])

    async def metadata(self, topic: str) -> MetadataResponseTopic:
        """What the next node in turn says about a topic. Raises OSError, TimeoutError."""
        connection = await self.any_broker()
        body = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await connection.request(ApiKey.METADATA, METADATA_VERSION, body, MetadataResponse)
        self._addresses.update({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        return answer.topics[0]

    async def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader that is remembered, or that the next node names; None: it knows of none. Raises OSError,
        TimeoutError."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            return known
        described = await self.metadata(topic)
        for found in described.partitions:
            key = GroupKey(described.topic_id, found.partition_index)
            if found.leader_id >= 0 and found.leader_epoch >= self._epochs.get(key, 0):
                self._epochs[key] = found.leader_epoch
                leader = Leader(found.leader_id, found.leader_epoch, key)
                self._leaders[topic, found.partition_index] = leader
        return self._leaders.get((topic, partition))

    async def coordinator(self, key: str, key_type: int = GROUP) -> Connection | None:
        """Of the coordinator that is remembered, or that the next node names; None: it knows of none. Raises OSError,
        TimeoutError."""
        if (key_type, key) not in self._coordinators:
            connection = await self.any_broker()
            body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = await connection.request(
                ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body, FindCoordinatorResponse
            )
            (found,) = answer.coordinators
            if found.error_code != ErrorCode.NONE:
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode(found.error_code)
                return None
            self._coordinators[key_type, key] = (found.host, found.port)
        return await self.connection(self._coordinators[key_type, key])

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        self._coordinators.pop((key_type, key), None)

    def leave(self, connection: Connection) -> None:
        """Use another one from now on. This one stays open: what is on its way there may still arrive."""
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]

    def forget(self, topic: str, partition: int) -> None:
        """Ask anew who leads it: after any error, as real clients do."""
        self._leaders.pop((topic, partition), None)
