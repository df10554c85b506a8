"""A record of one replica is changed by hand, so that no checksum shows it."""

from __future__ import annotations

from protocol.records.batch import HEADER_BYTES, renew_crc
from tests.broker.world import World


def change_bytes(
    world: World, node_id: int, topic: str, offset: int, old: bytes, new: bytes, partition: int = 0
) -> None:
    """In the records of the batch that holds this offset, on one node. `new` has the size of `old`."""
    assert len(old) == len(new)
    (stored,) = world.replica(node_id, topic, partition).log.batches(offset, offset + 1)
    batch = bytearray(stored.view())
    assert batch.count(old, HEADER_BYTES) == 1
    at = batch.index(old, HEADER_BYTES)
    batch[at : at + len(old)] = new
    renew_crc(batch)
    file = world.disks[node_id].open(stored.file.path)
    file.write_at(stored.position, batch)
    file.close()
