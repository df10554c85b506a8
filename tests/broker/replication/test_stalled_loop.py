"""A loop that slept longer than an election timeout steps down before it serves (replication.md section 5)."""

from __future__ import annotations

import struct

from broker.network.connection import ClientConnection
from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, encode_request_header, parse_response_header
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
from tests.broker.world import running


def test_what_came_while_the_loop_slept_is_not_taken_by_the_leader_of_before() -> None:
    """asyncio and uvloop hand out what the sockets have before they look at the timers, so the tick that notices the
    sleep comes too late: with acks=1 the record would be acknowledged, and cut off by the next leader."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node, replica, process = world.nodes[leader], world.replica(leader, "foo"), world.processes[leader]
        world.loop.pause(process)
        world.loop.run_for(5)

        records = build_batch([NewRecord(None, b"late", 0)])
        data = PartitionProduceData(index=0, records=memoryview(records))
        body = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="foo", partition_data=[data])],
        )
        header = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, None))
        frame = header + encode(body, 9)
        connection = node._client_factory("PLAINTEXT")()
        assert isinstance(connection, ClientConnection)

        def bytes_came() -> None:
            received = struct.pack(">i", len(frame)) + frame
            memoryview(connection.get_buffer(-1))[: len(received)] = received
            connection.buffer_updated(len(received))

        process.call(bytes_came)
        assert not replica.is_leader
        parts = connection._requests[0].parts
        assert parts is not None, "answered at once"
        answer = memoryview(b"".join(parts))[4:]
        _, position = parse_response_header(ApiKey.PRODUCE, 9, answer)
        response, _ = decode(ProduceResponse, 9, answer, position)
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
