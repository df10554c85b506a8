"""Batches as producers make them, and one request with one of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import HEADER_BYTES, Compression, pack_header, parse_header, renew_crc
from protocol.records.builder import NewRecord, build_batch
from tests.simulator.client import Connection
from tests.simulator.clock import EPOCH_MS
from tests.simulator.invariants.one_value_per_offset import content_digest
from tests.simulator.oracle import Oracle
from tests.simulator.workload.keyed import keyed_records
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import REFUSALS

PRODUCE_VERSION = 11
#: Keys repeat, as in an application with that many things to speak of.
KEYS = 7
#: How often a batch is one whose records a broker looks at in several steps, so that much can happen in between.
LARGE_SHARE = 0.03
LARGE_BYTES = 4_000_000


def pause_s(rng: random.Random, mean_s: float) -> float:
    """Between two sends of a producer, which come in bursts: in every other case there is more to send at once."""
    return 0.0 if rng.random() < 0.5 else rng.expovariate(1 / (2 * mean_s))


class Batch:
    """What a producer holds until it is acknowledged or given up."""

    def __init__(
        self,
        records: Sequence[NewRecord],
        data: bytes,
        base_sequence: int = -1,
        made_s: float | None = None,
    ) -> None:
        """`made_s`: loop time; None: now."""
        self.records = records
        self.data = data
        self.digest = content_digest(data)
        self.base_sequence = base_sequence
        self.made_s = asyncio.get_running_loop().time() if made_s is None else made_s
        #: Requests that carried it.
        self.requests = 0

    @property
    def count(self) -> int:
        return len(self.records)


def make_records(rng: random.Random, topic: TopicPlan, name: str, number: int) -> list[NewRecord]:
    """Of a producer's batch of this number. No two batches of a run have the same content: values name them."""
    if topic.is_compacted:
        return keyed_records(rng, f"{name}/{number}")
    now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
    records = [
        NewRecord(
            b"key %d" % rng.randrange(KEYS),
            b"%s/%d/%d " % (name.encode(), number, position) + rng.randbytes(rng.randrange(300)),
            now_ms,
        )
        for position in range(rng.randint(1, 4))
    ]
    if rng.random() < LARGE_SHARE:
        records.append(NewRecord(b"large", bytes(LARGE_BYTES), now_ms))
    return records


def compression_of(records: Sequence[NewRecord]) -> Compression:
    """Large batches are compressed, to some hundred bytes."""
    is_large = any(len(record.value or b"") >= LARGE_BYTES for record in records)
    return Compression.ZSTD if is_large else Compression.NONE


def plain_batch(records: Sequence[NewRecord]) -> Batch:
    return Batch(records, bytes(build_batch(records, compression=compression_of(records))))


def unreadable_batch(rng: random.Random, records: Sequence[NewRecord]) -> Batch:
    """A batch with a right checksum that no client could read: it has another number of records than it says, or more
    bytes than records."""
    compression = compression_of(records)
    data = build_batch(records, compression=compression)
    header = parse_header(data)
    if rng.random() < 0.5 or compression is not Compression.NONE:
        count = header.count + rng.choice((-1, 1))
        header = header._replace(count=count, last_offset_delta=count - 1)
    else:
        data += b"\0"
        header = header._replace(length=header.length + 1)
    data[:HEADER_BYTES] = pack_header(header)
    renew_crc(data)
    return Batch(records, bytes(data))


def produce_request(
    topic: str, partition: int, acks: int, batch: Batch, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch.data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


async def produce(
    connection: Connection,
    oracle: Oracle,
    topic: str,
    partition: int,
    acks: int,
    batch: Batch,
    *,
    transactional_id: str | None = None,
    version: int = PRODUCE_VERSION,
) -> PartitionProduceResponse:
    """Raises OSError, TimeoutError."""
    batch.requests += 1
    oracle.failed.sent(batch.digest)
    body = produce_request(topic, partition, acks, batch, transactional_id)
    answer = await connection.request(ApiKey.PRODUCE, version, body, ProduceResponse)
    response = answer.responses[0].partition_responses[0]
    if ErrorCode(response.error_code) in REFUSALS:
        oracle.failed.refused(batch.digest)
    return response


def acknowledged_by_all(
    oracle: Oracle, topic: TopicPlan, partition: int, base_offset: int, batch: Batch
) -> None:
    """The answer to acks=all came."""
    key = oracle.acknowledged.told(partition, base_offset, batch.digest)
    if topic.min_insync is not None:
        value = oracle.values.values[key, base_offset]
        oracle.nodes.in_sync.told(key, topic.name, value.last_offset, value.leader_epoch, topic.min_insync)


def produce_unanswered(
    connection: Connection, oracle: Oracle, topic: str, partition: int, batch: Batch
) -> None:
    """With acks=0."""
    batch.requests += 1
    oracle.failed.sent(batch.digest)
    connection.tell(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request(topic, partition, 0, batch))
