"""Lineage and batches of a log are one history (replication.md section 1): rows are chained, on disk as in memory; a
batch's epoch is the term of the last row at or before it, and no row stands inside it; base offsets follow on each
other; configurations differ from the one before by one server (section 3), and the group uses the newest."""

from __future__ import annotations

from broker.replication import wire
from broker.replication.replica import Replica
from protocol.records.batch import check_crc
from raft.types import Configuration, ReplicaId, RowKind
from storage.lineage import LINEAGE_NAME, Lineage
from storage.log import Log
from tests.simulator.swaps import SwapWatch


class LineageAgrees:
    def __init__(self) -> None:
        #: Of each log: the offset up to which it was walked, and the rows and truncations of then.
        self._walked: dict[Log, tuple[int, int, int]] = {}
        self._swaps = SwapWatch()

    def scan(self, replica: Replica) -> None:
        log, rows = replica.log, replica.log.lineage.rows
        offset, row_count, truncations = self._walked.get(log, (0, -1, 0))
        if truncations != log.truncation_count:
            offset, row_count = 0, -1
        if self._swaps.has_swapped(log):
            offset = 0
        if row_count != len(rows):
            _check_rows(log)
            _check_configurations(replica)
        _check_batches(log, max(offset, log.first_stored_offset))
        self._walked[log] = (log.end_offset, len(rows), log.truncation_count)


def _check_rows(log: Log) -> None:
    path = f"{log.directory}/{LINEAGE_NAME}"
    file = log.disk.open(path)
    on_disk = Lineage(log.disk, path)
    end = on_disk._parse(file.read(0, file.size))
    assert end == file.size, (
        f"{path}: the rows from byte {end} of {file.size} are not chained to those before"
    )
    assert on_disk.rows == log.lineage.rows, f"{path}: {on_disk.rows} on disk, {log.lineage.rows} in memory"


def _check_configurations(replica: Replica) -> None:
    before: Configuration | None = None
    for row in replica.log.lineage.rows:
        if row.kind != RowKind.CONFIGURATION:
            continue
        configuration = wire.decode_configuration(row.payload)[0]
        if before is not None:
            changed = [
                member
                for member in dict.fromkeys((*before.members, *configuration.members))
                if _part(before, member) != _part(configuration, member)
            ]
            assert len(changed) == 1, f"{replica.key}: {before} is followed by {configuration}"
        before = configuration
    used = replica.group.configuration
    assert before is None or used == before, f"{replica.key}: {used} is used, {before} is the newest"


def _part(configuration: Configuration, member: ReplicaId) -> tuple[bool, bool]:
    return member in configuration.voters, member in configuration.learners


def _check_batches(log: Log, offset: int) -> None:
    lineage, end_offset = log.lineage, offset
    for stored in log.batches(offset):
        header = stored.header
        where = f"{log.directory}: the batch at {header.base_offset}"
        if header.base_offset < offset:
            continue
        is_next = header.base_offset == end_offset
        assert is_next and header.base_offset >= end_offset, f"{where} follows the end {end_offset}"
        term = lineage.term_at_offset(header.base_offset)
        assert header.leader_epoch == term, (
            f"{where} has epoch {header.leader_epoch} under a row of term {term}"
        )
        width = lineage.index_of(header.last_offset) - lineage.index_of(header.base_offset)
        assert width == header.last_offset_delta, f"{where} has a row inside"
        assert check_crc(stored.view(), 0, header), f"{where} fails its CRC"
        end_offset = header.next_offset
    assert end_offset == log.end_offset, (
        f"{log.directory}: batches end at {end_offset}, the log at {log.end_offset}"
    )
