"""A data directory as a whole: its identity, its clean-shutdown marker, and the partitions in it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from storage.disk import Disk
from storage.errors import CorruptLogError, DirectoryFormatError, UnfinishedLogError
from storage.lineage import LINEAGE_NAME
from storage.partition_folder import (
    DELETE_SUFFIX,
    INSTALL_SUFFIX,
    METADATA_NAME,
    STRAY_SUFFIX,
    belongs_to,
    decode_uuid,
    encode_uuid,
    folder_name,
    free_name,
    free_name_with_id,
    parse_folder_name,
    read_install_target,
    read_topic_id,
)
from storage.segment_files import LOG_SUFFIX
from storage.small_files import read_file, replace_file

META_NAME = "meta.properties"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"


class MetaProperties(NamedTuple):
    """Whose directory this is (keys as in Kafka's meta.properties, version 1).

    A directory has its id, durably, before any other node hears of it. Its cluster is added later.
    """

    #: None while the directory belongs to no cluster. Nothing in it was promised to anybody then.
    cluster_id: str | None
    node_id: int
    directory_id: UUID


class PartitionFolder(NamedTuple):
    topic: str
    partition: int
    path: str
    #: None if nothing in the folder says it.
    topic_id: UUID | None
    #: As `is_unfinished` says.
    is_unfinished: bool


def is_formatted(disk: Disk) -> bool:
    return disk.exists(f"{disk.root}/{META_NAME}")


def format_directory(disk: Disk, meta: MetaProperties) -> None:
    """Give the directory an identity, durably. `directory_id` is random, made by the caller.

    A directory that has an identity keeps it: only a cluster may be added. For a directory that lost its votes there is
    `renew_identity`.
    """
    if is_formatted(disk):
        known = read_meta(disk)
        assert known._replace(cluster_id=meta.cluster_id) == meta, "a formatted directory keeps its identity"
        assert known.cluster_id in (None, meta.cluster_id), "a directory stays in its cluster"
    _write_meta(disk, meta)


def renew_identity(disk: Disk, directory_id: UUID) -> None:
    """Give a directory that lost its votes another id (replication.md section 3)."""
    _write_meta(disk, read_meta(disk)._replace(directory_id=directory_id))


def _write_meta(disk: Disk, meta: MetaProperties) -> None:
    path = f"{disk.root}/{META_NAME}"
    lines = (
        "version=1",
        *(() if meta.cluster_id is None else (f"cluster.id={meta.cluster_id}",)),
        f"node.id={meta.node_id}",
        f"directory.id={encode_uuid(meta.directory_id)}",
    )
    replace_file(disk, path, ("\n".join(lines) + "\n").encode("utf-8"))
    disk.flush_directory(disk.root)


def read_meta(disk: Disk) -> MetaProperties:
    """Read the identity. Raises DirectoryFormatError if there is none that this version understands."""
    path = f"{disk.root}/{META_NAME}"
    if not disk.exists(path):
        raise DirectoryFormatError(f"{disk.root} is not formatted")
    text = read_file(disk, path).decode("utf-8", "replace")
    lines = (line.strip() for line in text.splitlines())
    fields = dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))
    if fields.get("version") != "1":
        raise DirectoryFormatError(f"{path}: version {fields.get('version')}, expected 1")
    try:
        return MetaProperties(
            fields.get("cluster.id"), int(fields["node.id"]), decode_uuid(fields["directory.id"])
        )
    except (KeyError, ValueError) as error:
        raise DirectoryFormatError(f"{path}: {error}") from error


def take_clean_marker(disk: Disk) -> bool:
    """Whether the last shutdown was clean. Removes the marker, durably: call it before the first write after start
    (replication.md section 2)."""
    path = f"{disk.root}/{CLEAN_SHUTDOWN_NAME}"
    if not disk.exists(path):
        return False
    disk.unlink(path)
    disk.flush_directory(disk.root)
    return True


def write_clean_marker(disk: Disk) -> None:
    """Write the marker. Call it last, after every log and the journal were closed cleanly."""
    file = disk.open(f"{disk.root}/{CLEAN_SHUTDOWN_NAME}", create=True)
    file.flush()
    file.close()
    disk.flush_directory(disk.root)


def list_partitions(disk: Disk) -> list[PartitionFolder]:
    """Every partition folder. The names are durable.

    First finishes what a crash interrupted: deletions go on, an installed log takes the place of the one that it
    replaces, and an unfinished install is removed.
    """
    disk.flush_directory(disk.root)
    finish_deletions(disk)
    finish_installs(disk)
    folders = []
    for name in disk.list(disk.root):
        path = f"{disk.root}/{name}"
        parsed = parse_folder_name(name)
        if parsed is None or not disk.is_directory(path):
            continue
        topic_id, unfinished = None, False
        try:
            topic_id = read_topic_id(disk, path)
        except UnfinishedLogError:
            unfinished = is_unfinished(disk, path)
        except CorruptLogError:
            pass  # opening the log reports it
        folders.append(PartitionFolder(*parsed, path, topic_id, unfinished))
    return folders


def is_unfinished(disk: Disk, path: str) -> bool:
    """Whether the folder is there and the creation of its log never finished: nothing was promised, and the folder can
    be removed."""
    return disk.exists(path) and not disk.exists(f"{path}/{METADATA_NAME}") and not has_entries(disk, path)


def has_entries(disk: Disk, path: str) -> bool:
    """Whether a partition folder holds data or rows. They are written after `partition.metadata`. If that is missing
    all the same, it was lost, and the log may have acknowledged what it holds."""
    names = disk.list(path) if disk.exists(path) else []
    return any(
        _has_bytes(disk, f"{path}/{name}")
        for name in names
        if name.endswith(LOG_SUFFIX) or name == LINEAGE_NAME
    )


def _has_bytes(disk: Disk, path: str) -> bool:
    file = disk.open(path)
    size_bytes = file.size
    file.close()
    return size_bytes > 0


def finish_deletions(disk: Disk) -> None:
    for name in disk.list(disk.root):
        if name.endswith(DELETE_SUFFIX):
            disk.remove_later(f"{disk.root}/{name}")


def finish_installs(disk: Disk) -> None:
    """Finish or remove the installs that a crash interrupted. An install is renamed into place only when it is whole
    and durable. So if the old log is gone, the new one is complete. If the old log is there, the install was not
    finished."""
    for name in disk.list(disk.root):
        if not name.endswith(INSTALL_SUFFIX):
            continue
        path = f"{disk.root}/{name}"
        is_whole = disk.exists(f"{path}/{METADATA_NAME}")
        if is_whole and not disk.exists(target := f"{disk.root}/{read_install_target(disk, path)}"):
            disk.rename(path, target)
            disk.flush_directory(disk.root)
        else:
            disk.remove_tree(path)


def delete_partition(disk: Disk, topic: str, partition: int, topic_id: UUID) -> None:
    """Rename the closed log of this very topic, if it is there, to `-delete`, durably, then remove it in the
    background. Another topic may have the name by now. A folder that was not finished names no topic, and goes, too."""
    path = f"{disk.root}/{folder_name(topic, partition)}"
    if is_unfinished(disk, path):
        disk.remove_tree(path)
    if not belongs_to(disk, path, topic_id):
        return
    target = free_name_with_id(disk, path, topic_id, DELETE_SUFFIX)
    disk.rename(path, target)
    disk.flush_directory(disk.root)
    disk.remove_later(target)


def set_aside_partition(disk: Disk, topic: str, partition: int, topic_id: UUID | None) -> str:
    """Rename a closed log to `-stray` and keep it: the metadata lacks it, or it does not name its topic. Returns the
    new path."""
    path = f"{disk.root}/{folder_name(topic, partition)}"
    if topic_id is None:
        target = free_name(disk, path, STRAY_SUFFIX)
    else:
        target = free_name_with_id(disk, path, topic_id, STRAY_SUFFIX)
    disk.rename(path, target)
    disk.flush_directory(disk.root)
    return target
