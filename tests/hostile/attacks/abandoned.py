"""Work for clients that have gone."""

from __future__ import annotations

import time

from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import Compression
from protocol.records.builder import NewRecord, build_batch
from tests.broker.handlers.hostile.long_arrays import long_request
from tests.hostile.attacks.attack import Seen, close_all
from tests.hostile.target import Target

_TOPIC = "hostile-abandoned"
_RECORDS = 400_000
_VERSION = 7
#: Nodes at rest, with the client that behaves, stay below that.
_MAX_CPU = 0.4


def abandoned_requests(target: Target) -> Seen:
    """Ten clients ask ten times for a look-up by time in a batch of 400,000 records, for 19,000 look-ups, and for
    19,000 appends, and go. A second later the nodes must not work for them any more."""
    seen = Seen()
    target.create(_TOPIC, 1)
    began_ms = int(time.time() * 1000)
    records = [NewRecord(b"", b"", began_ms + number % 1000) for number in range(_RECORDS)]
    leader = target.leader_of(_TOPIC)
    with target.connect(leader) as wire:
        seen.counts[
            f"batch: {wire.produce(_TOPIC, build_batch(records, compression=Compression.ZSTD)).error_code}"
        ] += 1
    partition = ListOffsetsPartition(partition_index=0, timestamp=began_ms + 999)
    by_time = ListOffsetsRequest(topics=[ListOffsetsTopic(name=_TOPIC, partitions=[partition])])
    many = long_request(ListOffsetsRequest, _VERSION, ".topics.partitions", 19_000, distinct=True)
    long_produce = long_request(ProduceRequest, 9, ".topic_data.partition_data", 19_000, distinct=True)
    for request, version in ((by_time, _VERSION), (many, _VERSION), (long_produce, 9)):
        wires = [target.connect(leader) for _ in range(10)]
        for wire in wires:
            for _ in range(10):
                wire.send(request, version)
        close_all(wires)
        time.sleep(1)
        _check_rest(target, leader, seen, type(request).__name__)
    return seen


def _check_rest(target: Target, leader: int, seen: Seen, what: str) -> None:
    for node in target.local_nodes():
        if node.node_id == leader:
            before_s, began = node.cpu_s, time.monotonic()
            time.sleep(2)
            load = (node.cpu_s - before_s) / (time.monotonic() - began)
            seen.counts[f"{what}: % of a processor, a second later"] = round(load * 100)
            if load > _MAX_CPU:
                seen.defects.append(f"{what}: a second later the leader still uses {load:.0%} of a processor")
