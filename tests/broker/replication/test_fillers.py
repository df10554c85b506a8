"""A log that was compacted across the end of what another replica has: that one takes the rest of the filler."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.replication.ranges import check_range
from protocol import peer
from protocol.errors import KafkaError
from protocol.records.batch import BatchHeader, iter_batches, parse_header
from protocol.records.builder import NewRecord, build_batch, build_filler
from protocol.records.record import iter_records
from storage.disk import Disk
from storage.segment_files import LOG_SUFFIX
from tests.broker.world import World, running
from tests.storage.helpers import replace_by_filler

TOPIC = "t"
#: Compaction leaves nothing of [FIRST, END); a replica has everything below MIDDLE.
FIRST, MIDDLE, END = 5, 10, 25
LAST = 30


def _compact(disk: Disk, node_id: int) -> None:
    """The log of a node that has stopped."""
    directory = f"/n{node_id}/{TOPIC}-0"
    (name,) = [name for name in disk.list(directory) if name.endswith(LOG_SUFFIX)]
    file = disk.open(f"{directory}/{name}")
    compacted = replace_by_filler(file.read(0, file.size), FIRST, END)
    file.truncate(0)
    file.append([compacted])
    file.flush()
    file.close()


def _batches(world: World, node_id: int) -> list[BatchHeader]:
    return [stored.header for stored in world.replica(node_id, TOPIC).log.batches(0)]


def _records(world: World, node_id: int) -> list[tuple[int, bytes]]:
    content = memoryview(world.content(node_id, TOPIC))
    return [
        (record.offset, bytes(record.value or b""))
        for position, header in iter_batches(content)
        for record in iter_records(content[position : position + header.size_bytes])
    ]


def test_a_replica_whose_log_ends_inside_a_filler_takes_the_rest_of_it() -> None:
    with running() as world:
        world.create_topic(TOPIC)
        for number in range(MIDDLE):
            world.produce(TOPIC, b"%d" % number)
        world.wait_equal(TOPIC)
        leader = world.leader(TOPIC)
        behind = next(node_id for node_id in world.ids if node_id != leader)
        world.stop(behind)
        for number in range(MIDDLE, LAST):
            world.produce(TOPIC, b"%d" % number)
        others = list(world.nodes)
        for node_id in others:
            world.stop(node_id)
            _compact(world.disks[node_id], node_id)
        world.start_all()
        leader = world.leader(TOPIC)
        assert leader in others, "the log of the one that was away is shorter"
        world.produce(TOPIC, b"%d" % LAST)
        world.wait(lambda: world.replica(behind, TOPIC).high_watermark == LAST + 1)
        (filler,) = [header for header in _batches(world, behind) if header.is_filler]
        assert (filler.base_offset, filler.next_offset) == (MIDDLE, END)
        (filler,) = [header for header in _batches(world, leader) if header.is_filler]
        assert (filler.base_offset, filler.next_offset) == (FIRST, END)
        kept = [(offset, b"%d" % offset) for offset in (*range(FIRST), *range(END, LAST + 1))]
        assert _records(world, leader) == kept
        assert _records(world, behind) == sorted(
            [*kept, *((offset, b"%d" % offset) for offset in range(FIRST, MIDDLE))]
        )


def _message(batch: bytearray, start_offset: int, end_offset: int) -> peer.Append:
    """A range of a log with one row, of term 3, before everything."""
    return peer.Append(
        topic_id=UUID(int=7), partition=0, incarnation=0, follower_incarnation=0, term=3,
        start_index=start_offset + 1, prev_term=3, to_index=end_offset + 1, commit_end=0, log_start=0,
        start_offset=start_offset, rows=[], records=memoryview(batch),
    )  # fmt: skip


def test_a_range_that_begins_inside_a_filler_has_the_rest_of_it() -> None:
    batches = check_range(_message(build_filler(10, 30, 3), 17, 30))
    assert batches.headers == [parse_header(batches.views[0])]
    assert bytes(batches.views[0]) == build_filler(17, 30, 3)


def test_a_filler_that_came_in_part_is_taken_from_there_on() -> None:
    batches = check_range(_message(build_filler(10, 30, 3), 10, 30))
    assert [header.base_offset for header in batches.fresh(10).headers] == [10]
    assert bytes(batches.fresh(29).views[0]) == build_filler(29, 30, 3)
    assert batches.fresh(30).headers == []
    assert not batches.spans(20)


@pytest.mark.parametrize("start_offset", [9, 30])
def test_a_filler_that_is_not_at_the_start_of_its_range_is_damage(start_offset: int) -> None:
    with pytest.raises(KafkaError, match="instead of"):
        check_range(_message(build_filler(10, 30, 3), start_offset, 30))


def test_records_are_never_cut() -> None:
    batch = build_batch([NewRecord(b"k", b"v")] * 3, base_offset=10, leader_epoch=3)
    with pytest.raises(KafkaError, match="batch at 10 instead of 11"):
        check_range(_message(batch, 11, 13))
    assert check_range(_message(batch, 10, 13)).spans(11)


def test_a_filler_with_a_wrong_checksum_is_damage() -> None:
    filler = build_filler(10, 30, 3)
    filler[30] ^= 1  # of its timestamps
    with pytest.raises(KafkaError, match="CRC"):
        check_range(_message(filler, 17, 30))
