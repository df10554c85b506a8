"""Hostile requests against a world, and the checks of the world afterwards."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

import structlog

from broker.groups.records import decode as decode_record
from broker.metadata.ids import OFFSETS_TOPIC_NAME
from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.headers import parse_response_header
from protocol.messages import RESPONSES
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.records.record import iter_records
from tests.broker.groups.world import FEW, coordinator
from tests.broker.handlers.hostile.requests import TOPIC, HostileRequest
from tests.broker.world import World, running
from tests.simulator.client import Connection

#: APIs whose requests may wait for other members of the group.
_PARKED = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_ANSWERED_WITHIN_S = 40.0


class _OneRequest(Connection):
    """One connection, one request."""

    async def put(self, request: HostileRequest, frame: bytes) -> memoryview:
        assert self._transport is not None
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._open[1] = answer
        self._transport.write(struct.pack(">i", len(frame)) + frame)
        return await answer


class Attack:
    """Sends requests to one world, and checks it afterwards."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topic_id = world.create_topic(TOPIC, partitions=2).topic_id
        self.member_id = ""
        self._bystander = Connection()
        self._connect(self._bystander, 1)
        coordinator(world, "bystander")

    def _connect(self, connection: Connection, node_id: int) -> None:
        network = self.world.network.of("client")
        task = self.world.loop.create_task(network.connect(f"n{node_id}", 9092, lambda: connection))
        self.world.wait(task.done)
        task.result()

    def send(self, node_id: int, request: HostileRequest) -> None:
        connection = _OneRequest()
        self._connect(connection, node_id)
        if connection.is_lost:
            return  # an earlier request has set a quota of new connections
        frame = request.frame(1, self.topic_id, self.member_id)
        task = self.world.loop.create_task(connection.put(request, frame))
        if not request.is_answered or request.api.key in _PARKED:
            self.world.loop.run_for(1)
        else:
            self.world.wait(task.done, limit_s=_ANSWERED_WITHIN_S)
        if not task.done():
            connection.abort()
            self.world.wait(task.done)
        if task.exception() is None:
            self._check_answer(request, task.result())
        else:
            assert isinstance(task.exception(), ConnectionError)

    def _check_answer(self, request: HostileRequest, answer: memoryview) -> None:
        """Check that this is an answer to the request."""
        _, position = parse_response_header(request.api.key, request.version, answer)
        body, end = decode(RESPONSES[request.api.key], request.version, answer, position)
        assert end == len(answer)
        self.member_id = getattr(body, "member_id", None) or self.member_id

    def survived(self) -> None:
        assert all(process.alive for process in self.world.processes.values())
        self._bystander_is_served()
        self._records_can_be_read()
        for node_id in self.world.ids:
            self.world.kill(node_id, power=True)
        for node_id in self.world.ids:
            self.world.start(node_id)
        self.world.wait_ready()
        self._groups_are_loaded()

    def _bystander_is_served(self) -> None:
        question = self._bystander.request(
            ApiKey.METADATA, 12, MetadataRequest(topics=None), MetadataResponse
        )
        task = self.world.loop.create_task(question)
        self.world.wait(task.done)
        assert task.result().brokers

    def _records_can_be_read(self) -> None:
        """Check all records, also those that loading skips because a newer one replaces them."""
        for partition in range(int(FEW["offsets.topic.num.partitions"])):
            leader = self.world.leader(OFFSETS_TOPIC_NAME, partition)
            log = self.world.replica(leader, OFFSETS_TOPIC_NAME, partition).log
            for _, batch in log.checked_batches(log.start_offset, log.end_offset):
                for record in iter_records(batch):
                    assert record.key is not None
                    decode_record(
                        memoryview(record.key), None if record.value is None else memoryview(record.value)
                    )

    def _groups_are_loaded(self) -> None:
        """Check that each partition of __consumer_offsets is loaded by its present leader."""
        wanted = set(range(int(FEW["offsets.topic.num.partitions"])))

        def loaded() -> bool:
            coordinators = [node.coordinators.groups for node in self.world.nodes.values()]
            found = {led.replica.partition for each in coordinators for led in each.loaded_partitions()}
            return found == wanted

        self.world.wait(loaded)


def run_attack(requests: Iterable[tuple[int, HostileRequest]]) -> None:
    # The first rebalance of a group does not wait for more members.
    with (
        running(settings={**FEW, "group.initial.rebalance.delay.ms": "0"}) as world,
        structlog.testing.capture_logs() as logged,
    ):
        started = Attack(world)
        for node_id, request in requests:
            started.send(node_id, request)
        started.survived()
        assert [line for line in logged if line["log_level"] in ("error", "critical")] == []
