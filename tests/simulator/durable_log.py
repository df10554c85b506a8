"""What a disk surely keeps of a log, whatever the process that writes it believes.

Reads the durable bytes under a partition's folder with the rules of recovery (replication.md section 1: rows are
chained, a batch's epoch equals the term of the last row at or before it) and looks at no state of the product. A
segment that compaction has built counts as those whose place it takes from the moment on from which the next start
would put it there (storage/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.records.batch import HEADER_BYTES, parse_header
from protocol.records.crc import crc32c
from storage.lineage import LINEAGE_NAME, Lineage
from storage.log_types import GroupKey
from storage.partition_folder import METADATA_NAME, encode_uuid, folder_name
from storage.segment_files import LOG_SUFFIX, segment_path
from storage.segment_swap import COMPACTED_NAME
from tests.simulator.disk import MemoryDisk


@dataclass
class DurableLog:
    """Everything below `end_index` survives a loss of power now."""

    lineage: Lineage
    end_index: int

    def holds(self, end_index: int, term: int) -> bool:
        """By log matching: the entry before `end_index` is here with that term, so all before it are the same."""
        return end_index <= self.end_index and self.lineage.term_at_index(end_index - 1) == term


@dataclass
class _Parsed:
    """How far a segment was read: it grows at its end nearly always."""

    position: int = 0
    end_offset: int = 0
    #: Of the last batch that was read. A cut that goes further back changes it.
    last_position: int = 0
    last_header: bytes = b""


class DurableLogs:
    """The logs on all disks. What was read once is remembered, as long as it is still there."""

    def __init__(self, disks: Mapping[int, MemoryDisk]) -> None:
        self._disks = disks
        self._lineages: dict[tuple[MemoryDisk, str], tuple[bytes, Lineage]] = {}
        self._segments: dict[tuple[MemoryDisk, str], _Parsed] = {}

    def of(self, node_id: int, topic: str, key: GroupKey) -> DurableLog | None:
        """None where no log of this group would be found."""
        disk = self._disks[node_id]
        directory = self._directory(disk, topic, key)
        if directory is None:
            return None
        lineage = self._lineage(disk, f"{directory}/{LINEAGE_NAME}")
        last = _segments(disk, directory)[-2:]
        end_offset = last[0][0] if last else 0
        for base_offset, path in last:
            # A segment begins when all before it is durable; the last but one is read to see that it does.
            if base_offset != end_offset:
                break
            end_offset = self._segment_end(disk, path, base_offset, lineage)
        return DurableLog(lineage, end_offset + lineage.rows_before_or_at(end_offset))

    def start_offset(self, node_id: int, topic: str, key: GroupKey) -> int:
        """Where the first segment begins. 0 where no log of this group would be found."""
        disk = self._disks[node_id]
        directory = self._directory(disk, topic, key)
        segments = [] if directory is None else _segments(disk, directory)
        return segments[0][0] if segments else 0

    @staticmethod
    def _directory(disk: MemoryDisk, topic: str, key: GroupKey) -> str | None:
        """The group's folder, if it says that it is the group's."""
        directory = f"{disk.root}/{folder_name(topic, key.partition)}"
        label = disk.durable_contents(f"{directory}/{METADATA_NAME}")
        return directory if label is not None and encode_uuid(key.topic_id).encode() in label else None

    def _lineage(self, disk: MemoryDisk, path: str) -> Lineage:
        contents = disk.durable_contents(path) or b""
        known = self._lineages.get((disk, path))
        if known is None or known[0] != contents:
            lineage = Lineage(disk, path)
            lineage._parse(memoryview(contents))
            known = self._lineages[disk, path] = contents, lineage
        return known[1]

    def _segment_end(self, disk: MemoryDisk, path: str, base_offset: int, lineage: Lineage) -> int:
        """The end of the last batch that recovery would accept."""
        contents = disk.durable_contents(path) or b""
        parsed = self._segments.get((disk, path))
        if parsed is None or not contents.startswith(parsed.last_header, parsed.last_position):
            parsed = self._segments[disk, path] = _Parsed(end_offset=base_offset)
        while parsed.position + HEADER_BYTES <= len(contents):
            header = parse_header(contents, parsed.position)
            is_whole = header.length > 0 and parsed.position + header.size_bytes <= len(contents)
            if not is_whole or header.base_offset != parsed.end_offset:
                break
            if header.leader_epoch != lineage.term_at_offset(header.base_offset):
                break
            parsed.last_position = parsed.position
            parsed.last_header = contents[parsed.position : parsed.position + HEADER_BYTES]
            parsed.position += header.size_bytes
            parsed.end_offset = header.next_offset
        if parsed.position > len(contents):
            del self._segments[disk, path]  # cut inside the last batch
            return self._segment_end(disk, path, base_offset, lineage)
        return parsed.end_offset


def _segments(disk: MemoryDisk, directory: str) -> list[tuple[int, str]]:
    """Base offset and path of each segment that the next start would find, in order."""
    names = disk.durable_names(directory)
    found = {
        int(name.removesuffix(LOG_SUFFIX)): f"{directory}/{name}"
        for name in names
        if name.endswith(LOG_SUFFIX)
    }
    if COMPACTED_NAME in names:
        folder = f"{directory}/{COMPACTED_NAME}"
        replaced = _replaced(disk.durable_contents(f"{folder}/replaced") or b"")
        built = segment_path(folder, replaced[0]) if replaced else ""
        if built.rpartition("/")[2] in disk.durable_names(folder):
            for base_offset in replaced:
                found.pop(base_offset, None)
            found[replaced[0]] = built
    return sorted(found.items())


def _replaced(contents: bytes) -> list[int]:
    """The base offsets of the segments that are replaced. None where the file is not whole."""
    *lines, checksum = contents.splitlines(keepends=True) or [b""]
    is_whole = checksum == b"%08x\n" % crc32c(b"".join(lines))
    return [int(line) for line in lines] if is_whole else []
