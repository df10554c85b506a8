"""Disks that are slow, hang, fail, are full, corrupt data, and are lost; processes that die during an operation.

What damages durable bytes asks `tests.simulator.damage` first, and does nothing where it may not.
"""

from __future__ import annotations

import random
from contextlib import suppress

from storage.errors import CorruptLogError
from storage.journal import _HEADER as JOURNAL_HEADER
from storage.journal import JOURNAL_NAME, _parse_frame
from storage.lineage import LINEAGE_NAME
from storage.log_types import GroupKey
from storage.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    iter_headers,
)
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.damage import Folder, folders
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_journal import durable_journal
from tests.simulator.faults.kind import Fault
from tests.simulator.inode import SECTOR_BYTES

#: How long a disk fails, is full, or hangs, on average.
ERRORS_S = 0.2
FULL_S = 1.5
HANGS_S = 1.5
#: What is left on a full disk: from nothing to some segments and one extension of the journal.
LEFT_BYTES = 200_000


def slow_disk(cluster: SimulatedCluster, rng: random.Random) -> None:
    faults = cluster.disks[rng.choice(cluster.node_ids)].faults
    faults.slow_factor = 200.0 if faults.slow_factor == 1.0 else 1.0


def hanging_disk(cluster: SimulatedCluster, rng: random.Random) -> None:
    """No flush ends for a while. Half of the time a read or a write hangs, too, and its process with it."""
    node_id, seconds = rng.choice(cluster.node_ids), rng.expovariate(1 / HANGS_S)
    cluster.disks[node_id].faults.hangs_until_s = cluster.loop.time() + seconds
    if rng.random() < 0.5 and cluster.is_alive(node_id):
        cluster.after(seconds, cluster.pause(node_id))


def flush_errors(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Section 2: any error of fsync ends the process."""
    _errors(cluster, rng, "flush_error_rate", rng.choice((0.1, 1.0)))


def read_errors(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Section 2: EIO from anything ends the process."""
    _errors(cluster, rng, "read_error_rate", rng.choice((0.1, 1.0)))


def write_errors(cluster: SimulatedCluster, rng: random.Random) -> None:
    """... and a part of the write is there all the same."""
    _errors(cluster, rng, "write_error_rate", rng.choice((0.1, 1.0)))


def writeback_errors(cluster: SimulatedCluster, rng: random.Random) -> None:
    """EIO from an early write-back: the caller is told, or the next flush is."""
    _errors(cluster, rng, "writeback_error_rate", rng.choice((0.1, 1.0)))


def _errors(cluster: SimulatedCluster, rng: random.Random, kind: str, rate: float) -> None:
    faults = cluster.disks[rng.choice(cluster.node_ids)].faults
    setattr(faults, kind, rate)
    cluster.after(rng.expovariate(1 / ERRORS_S), lambda: setattr(faults, kind, 0.0))


def full_disk(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Somebody else fills the file system, and tidies up later."""
    disk = cluster.disks[rng.choice(cluster.node_ids)]
    disk.faults.capacity_bytes = disk.used_bytes + rng.choice(
        (0, rng.randrange(3000), rng.randrange(LEFT_BYTES))
    )
    cluster.after(rng.expovariate(1 / FULL_S), disk.faults.make_room)


def death_in_an_operation(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A process dies, or its machine loses power, between two operations of its disk, or in the middle of a write:
    where no other fault strikes, because nothing else happens in the middle of a callback."""
    node_id = rng.choice(cluster.node_ids)
    end = rng.choice((cluster.kill, cluster.cut_power))

    def death() -> None:
        end(node_id)
        cluster.start_later(node_id, rng.expovariate(1 / 0.3))

    cluster.disks[node_id].die_after(int(rng.expovariate(1 / 40)), death)


# -- what was durable goes bad --------------------------------------------------------------------------------


def wipe(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A node dies, and comes back with an empty volume."""
    node_id = rng.choice(cluster.node_ids)
    if not cluster.damage.may_damage(node_id):
        return
    if cluster.is_alive(node_id):
        rng.choice((cluster.kill, cluster.cut_power))(node_id)
    cluster.damage.note(node_id, is_lost=True)
    cluster.wipe(node_id)
    cluster.start_later(node_id, rng.expovariate(1 / 0.5))


def corrupt_log(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Of batches or rows below the recorded flushed end; perhaps the node starts again then, and meets it."""
    node_id = rng.choice(cluster.node_ids)
    disk = cluster.disks[node_id]
    recorded = durable_journal(disk)
    by_key = folders(disk)
    keys = [key for key in by_key if key in recorded and recorded[key].flushed_end is not None]
    if not keys:
        return
    key = rng.choice(keys)
    end = recorded[key].flushed_end
    assert end is not None
    place = rng.choice((_rows, _batches, _batches))(disk, by_key[key], end.end_offset, end.row_count, rng)
    if place is None or not cluster.damage.may_damage(node_id, key):
        return
    cluster.damage.note(node_id, key)
    _spoil(disk, *place, rng)
    _perhaps_again(cluster, rng, node_id)


def _batches(
    disk: MemoryDisk, folder: Folder, end_offset: int, row_count: int, rng: random.Random
) -> tuple[str, int, int] | None:
    """(path, start, end): bytes of a segment that end below that offset."""
    names = [name for name in disk.list(folder.path) if name.endswith(LOG_SUFFIX)]
    if not names:
        return None
    path = f"{folder.path}/{rng.choice(names)}"
    file, durable_bytes = disk.open(path), 0
    # A write that was cut off may stand behind what is durable, until the next start finds it.
    with suppress(CorruptLogError):
        for position, header in iter_headers(file, 0, file.size):
            if header.last_offset >= end_offset:
                break
            durable_bytes = position + header.size_bytes
    return (path, 0, durable_bytes) if durable_bytes else None


def _rows(
    disk: MemoryDisk, folder: Folder, end_offset: int, row_count: int, rng: random.Random
) -> tuple[str, int, int] | None:
    """The same of the lineage: the bytes of its first rows."""
    ends = folder.lineage._ends
    return (f"{folder.path}/{LINEAGE_NAME}", 0, ends[row_count - 1]) if 0 < row_count <= len(ends) else None


def corrupt_journal(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Of a record that a later one calls durable: the end of a journal cannot be told from a torn one. The directory
    has forgotten its votes, and is another one from then on (section 3)."""
    node_id = rng.choice(cluster.node_ids)
    disk = cluster.disks[node_id]
    path = f"{disk.root}/{JOURNAL_NAME}"
    contents = memoryview(disk.durable_contents(path) or b"")
    frames: list[tuple[int, int, int]] = []
    position, known = 0, -1
    while (frame := _parse_frame(contents, position)) is not None:
        frames.append((frame.sequence, position, position + JOURNAL_HEADER.size + len(frame.payload)))
        position, known = frame.end, max(known, frame.flushed_sequence)
    places = [(start, end) for sequence, start, end in frames if sequence <= known]
    if not places or not cluster.damage.may_damage(node_id):
        return
    cluster.damage.note(node_id, is_lost=True)
    start, end = rng.choice(places)
    disk.corrupt(path, rng.randrange(start, end), bytes([1 << rng.randrange(8)]))
    _perhaps_again(cluster, rng, node_id)


def vanished_folder(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Somebody removes the folder of a replica under the node that has it. What the node has open works on, and is lost
    when the node ends. That happens when it needs a name in the folder; the next start finds that its log is gone."""
    node_id = rng.choice(cluster.node_ids)
    disk = cluster.disks[node_id]
    recorded, by_key = durable_journal(disk), folders(disk)
    keys = [
        key for key in by_key if key in recorded and recorded[key].has_vote and _votes(cluster, node_id, key)
    ]
    if not keys:
        return
    key = rng.choice(keys)
    if cluster.damage.may_damage(node_id, key):
        cluster.damage.note(node_id, key, is_lost=True)
        disk.vanish(by_key[key].path)
        _perhaps_again(cluster, rng, node_id)


def _votes(cluster: SimulatedCluster, node_id: int, key: GroupKey) -> bool:
    """A learner whose log is lost could still become one of the voters who are counted on."""
    replica = cluster.holders(key).get(node_id)
    return replica is None or replica.group.self_id in replica.group.committed_configuration.voters


def corrupt_snapshot(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Section 8: what a producer snapshot says cannot be had from anywhere else."""
    node_id = rng.choice(cluster.node_ids)
    disk = cluster.disks[node_id]
    places = _files(disk, (SNAPSHOT_SUFFIX,))
    if not places:
        return
    key, path = rng.choice(places)
    if cluster.damage.may_damage(node_id, key):
        cluster.damage.note(node_id, key)
        _spoil(disk, path, 0, disk.open(path).size, rng)
        _perhaps_again(cluster, rng, node_id)


def corrupt_index(cluster: SimulatedCluster, rng: random.Random) -> None:
    """An index can be rebuilt from its segment: nothing is lost with it, so this may happen anywhere. A bit is really
    inverted, for the harness as well: it reads logs with the product's indexes."""
    node_id = rng.choice(cluster.node_ids)
    disk = cluster.disks[node_id]
    places = [path for _, path in _files(disk, (INDEX_SUFFIX, TIME_INDEX_SUFFIX)) if disk.open(path).size]
    if places:
        path = rng.choice(places)
        disk.flip_bits(path, 0, disk.open(path).size, count=rng.choice((1, 1, 8)))
        _perhaps_again(cluster, rng, node_id)


def _files(disk: MemoryDisk, suffixes: tuple[str, ...]) -> list[tuple[GroupKey, str]]:
    return [
        (key, f"{folder.path}/{name}")
        for key, folder in folders(disk).items()
        for name in disk.list(folder.path)
        if name.endswith(suffixes)
    ]


def _spoil(disk: MemoryDisk, path: str, start: int, end: int, rng: random.Random) -> None:
    """A bit within a range of a file, or what lies in the range of a whole sector."""
    at = rng.randrange(start, end)
    if rng.random() < 0.6:
        disk.corrupt(path, at, bytes([1 << rng.randrange(8)]))
        return
    sector = at - at % SECTOR_BYTES
    first, last = max(sector, start), min(sector + SECTOR_BYTES, end)
    disk.corrupt(path, first, rng.randbytes(last - first))


def _perhaps_again(cluster: SimulatedCluster, rng: random.Random, node_id: int) -> None:
    """At rest, if it is started anew soon; while running otherwise."""
    if rng.random() < 0.5 and cluster.is_alive(node_id):
        rng.choice((cluster.kill, cluster.cut_power))(node_id)
    if not cluster.is_alive(node_id):
        cluster.start_later(node_id, rng.expovariate(1 / 0.3))


#: After these a node may have to begin a log anew.
LOSSES: dict[str, Fault] = {
    "wipe": wipe,
    "corrupt log": corrupt_log,
    "corrupt journal": corrupt_journal,
    "vanished folder": vanished_folder,
    "corrupt snapshot": corrupt_snapshot,
}

FAULTS: dict[str, Fault] = {
    "slow disk": slow_disk,
    "hanging disk": hanging_disk,
    "flush errors": flush_errors,
    "read errors": read_errors,
    "write errors": write_errors,
    "write-back errors": writeback_errors,
    "full disk": full_disk,
    "death in an operation": death_in_an_operation,
    **LOSSES,
    "corrupt index": corrupt_index,
}
