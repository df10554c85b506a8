"""Creating logs: new ones, many at once, and an installed one that replaces another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.disk import Disk
from storage.journal import Journal
from storage.journal_records import Flushed
from storage.lineage import Lineage, Row
from storage.log import Log
from storage.log_recovery import open_log
from storage.log_types import NOTHING_FLUSHED, GroupKey, LogConfig
from storage.partition_folder import (
    DELETE_SUFFIX,
    INSTALL_TARGET_NAME,
    free_name_with_id,
    install_folder,
    write_install_target,
    write_topic_id,
    write_topic_ids,
)
from storage.segment import Segment
from storage.segment_files import SNAPSHOT_SUFFIX, segment_path
from storage.small_files import write_file


class NewLog(NamedTuple):
    directory: str
    group: GroupKey
    config: LogConfig


def create_logs(disk: Disk, wanted: Sequence[NewLog]) -> list[Log]:
    """Create empty logs of groups that the journal does not know, in folders that do not exist. Their names are
    durable.

    All share a few flushes. If a crash leaves a folder with some of its files, the journal has no vote record of the
    group: the log was never used, and is created again.
    """
    logs = [_empty_log(disk, new) for new in wanted]
    write_topic_ids(disk, [(new.directory, new.group.topic_id) for new in wanted])
    disk.flush_together((), [disk.root, *(new.directory for new in wanted)])
    return logs


def _empty_log(disk: Disk, new: NewLog) -> Log:
    disk.make_directory(new.directory)
    lineage = Lineage.create(disk, new.directory)
    file = disk.open(segment_path(new.directory, 0), create=True)
    segment = Segment(disk, new.directory, 0, file, new.config.index_interval_bytes)
    return Log(
        disk,
        new.directory,
        new.group,
        new.config,
        lineage=lineage,
        segments=[segment],
        start_offset=0,
        install_offset=0,
        end_offset=0,
        flushed_end=NOTHING_FLUSHED,
    )


def create_log(disk: Disk, directory: str, group: GroupKey, config: LogConfig) -> Log:
    """Create an empty log in a new folder, whatever the journal says of the group. Its name is durable.

    A folder of the same name is deleted in the background. It is unfinished, or of an earlier incarnation.
    """
    if disk.exists(directory):
        _discard_folder(disk, directory, group)
    _write_folder(disk, directory, group, start_offset=0, rows=(), producer_snapshot=None)
    disk.flush_directory(disk.root)
    return open_log(disk, directory, group, config, recorded=None, log_start=0, is_clean=True)


def install_log(
    disk: Disk,
    journal: Journal,
    directory: str,
    group: GroupKey,
    config: LogConfig,
    *,
    log_start: int,
    rows: Sequence[Row],
    producer_snapshot: bytes | None,
) -> Log:
    """Replace a (closed) log by an empty one that starts at `log_start` (replication.md section 7).

    `rows` are all lineage rows up to there. The new log is built beside the old one and takes its name only when it is
    durable. A crash at any step leaves one of the two, whole (`directory.finish_installs`).
    """
    # The recorded end speaks of the old log: with it, recovery would find the new one corrupt.
    journal.append(Flushed(group, NOTHING_FLUSHED))
    journal.flush()
    building = install_folder(disk, group.topic_id, group.partition)
    if disk.exists(building):
        disk.remove_tree(building)
    disk.make_directory(building)
    write_install_target(disk, building, directory.rpartition("/")[2])
    _write_folder(disk, building, group, log_start, rows, producer_snapshot)
    disk.flush_directory(disk.root)
    if disk.exists(directory):
        _discard_folder(disk, directory, group)
    disk.rename(building, directory)
    disk.flush_directory(disk.root)
    disk.unlink(f"{directory}/{INSTALL_TARGET_NAME}")
    return open_log(disk, directory, group, config, recorded=None, log_start=log_start, is_clean=True)


def _discard_folder(disk: Disk, directory: str, group: GroupKey) -> None:
    discarded = free_name_with_id(disk, directory, group.topic_id, DELETE_SUFFIX)
    disk.rename(directory, discarded)
    disk.flush_directory(disk.root)
    disk.remove_later(discarded)


def _write_folder(
    disk: Disk,
    directory: str,
    group: GroupKey,
    start_offset: int,
    rows: Sequence[Row],
    producer_snapshot: bytes | None,
) -> None:
    """Write a folder with an empty first segment. `partition.metadata` comes last: a folder that has it is whole."""
    disk.make_directory(directory)
    Lineage.create(disk, directory, rows).flush()
    disk.open(segment_path(directory, start_offset), create=True).close()
    if producer_snapshot is not None:
        write_file(disk, segment_path(directory, start_offset, SNAPSHOT_SUFFIX), producer_snapshot)
    disk.flush_directory(directory)
    write_topic_id(disk, directory, group.topic_id)
    disk.flush_directory(directory)
