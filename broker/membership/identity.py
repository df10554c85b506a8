"""Whose directory this is: read at start, before anything in it is believed (replication.md sections 3, 4 and 10).

A directory has its id before another node hears of it, so that a formation names nobody who a power cut makes another;
it gets its cluster when it joins one. A directory that lost its journal forgot what it voted: it is another one.
"""

from __future__ import annotations

import random
from typing import NamedTuple
from uuid import UUID

import structlog

from broker.config.node_config import NodeConfig
from broker.metadata.ids import METADATA_TOPIC_NAME, random_uuid
from storage.directory import (
    MetaProperties,
    format_directory,
    is_formatted,
    list_partitions,
    read_meta,
    renew_identity,
    set_aside_partition,
    take_clean_marker,
)
from storage.disk import Disk
from storage.errors import DirectoryFormatError, JournalCorruptError
from storage.journal import JOURNAL_NAME, Journal
from storage.partition_folder import free_name, parse_folder_name

logger = structlog.get_logger()

#: A journal that could not be read is kept under this suffix, for whoever wants to know why.
CORRUPT_SUFFIX = ".corrupt"
#: Apache Kafka's checkpoints, of a directory (recovery-point-offset-checkpoint) and of a partition
#: (leader-epoch-checkpoint), and its snapshots of the metadata; and its vote (KIP-595).
_KAFKA_SUFFIXES = ("-checkpoint", ".checkpoint")
_KAFKA_QUORUM_STATE = "quorum-state"


class StartError(Exception):
    """The node cannot start; the message is for the person who tries."""


class RestartError(Exception):
    """The node cannot go on as it is. It must be started again at once, and that start mends what the message says."""


class Identity(NamedTuple):
    directory_id: UUID
    #: None: empty, of no cluster yet.
    cluster_id: str | None
    is_clean_start: bool
    journal: Journal


def take_directory(disk: Disk) -> None:
    """Lock the directory. Raises StartError, with nothing written, if it is one of Apache Kafka's;
    DirectoryLockedError, DiskError."""
    if (mark := _mark_of_kafka(disk)) is not None:
        raise StartError(
            f"{disk.root} is a data directory of Apache Kafka: {mark} is in it. Nothing was changed. Varve cannot take "
            "over what is there. Give it a directory of its own (log.dirs, --log-dirs)"
        )
    disk.lock()


def _mark_of_kafka(disk: Disk) -> str | None:
    """A file that Apache Kafka writes and Varve does not. Both have meta.properties and partition folders, so that what
    is Kafka's would be taken for a directory of ours that has lost its journal."""
    if disk.exists(f"{disk.root}/{JOURNAL_NAME}"):
        return None
    for name in disk.list(disk.root):
        if name.endswith(_KAFKA_SUFFIXES):
            return name
        if parse_folder_name(name) is None or not disk.is_directory(f"{disk.root}/{name}"):
            continue
        for inner in disk.list(f"{disk.root}/{name}"):
            if inner.endswith(_KAFKA_SUFFIXES) or inner == _KAFKA_QUORUM_STATE:
                return f"{name}/{inner}"
    return None


def open_identity(disk: Disk, config: NodeConfig, rng: random.Random) -> Identity:
    """Read the locked directory, or give it an id. Raises StartError, DiskError."""
    if is_formatted(disk):
        meta = _read_own_meta(disk, config)
        if meta.cluster_id is None:
            _discard_unfinished(disk)
    else:
        _discard_unfinished(disk)
        meta = MetaProperties(None, config.node_id, random_uuid(rng))
        format_directory(disk, meta)
    is_clean = take_clean_marker(disk)
    # Also finishes what a crash interrupted, so it comes before any log is opened.
    list_partitions(disk)
    if meta.cluster_id is not None and not disk.exists(f"{disk.root}/{JOURNAL_NAME}"):
        return _lose_identity(disk, meta, rng, "the journal is gone")
    try:
        journal = Journal.open(disk)
    except JournalCorruptError as error:
        return _lose_identity(disk, meta, rng, str(error))
    return Identity(meta.directory_id, meta.cluster_id, is_clean, journal)


def _read_own_meta(disk: Disk, config: NodeConfig) -> MetaProperties:
    try:
        meta = read_meta(disk)
    except DirectoryFormatError as error:
        raise StartError(str(error)) from error
    if meta.node_id != config.node_id:
        raise StartError(f"{disk.root} belongs to node {meta.node_id}, this is node {config.node_id}")
    if meta.cluster_id is not None and config.cluster_id not in (None, meta.cluster_id):
        raise StartError(f"{disk.root} belongs to cluster {meta.cluster_id}, not to {config.cluster_id}")
    return meta


def _discard_unfinished(disk: Disk) -> None:
    """Of no cluster: at most the traces of a formation that a crash cut short may lie here."""
    folders = list_partitions(disk)
    for folder in folders:
        if folder.topic != METADATA_TOPIC_NAME:
            raise StartError(
                f"{folder.path} is there, but {disk.root} is of no cluster. If meta.properties was "
                "lost, put it back; otherwise choose another directory (log.dirs, --log-dirs)"
            )
    for folder in folders:
        disk.remove_tree(folder.path)
    if disk.exists(f"{disk.root}/{JOURNAL_NAME}"):
        disk.unlink(f"{disk.root}/{JOURNAL_NAME}")
    disk.flush_directory(disk.root)


def _lose_identity(disk: Disk, meta: MetaProperties, rng: random.Random, reason: str) -> Identity:
    """What this directory voted is not known any more: begin as another one, and keep the logs aside.

    The new id is durable first and the journal goes last: a crash at any step begins this anew, and never leaves
    the old identity beside an empty journal.
    """
    directory_id = random_uuid(rng)
    logger.error(
        "the directory lost its votes and rejoins as a new one; its logs are kept aside",
        directory=disk.root,
        reason=reason,
        old_directory_id=str(meta.directory_id),
        directory_id=str(directory_id),
    )
    renew_identity(disk, directory_id)
    for folder in list_partitions(disk):
        if folder.is_unfinished:
            disk.remove_tree(folder.path)
        else:
            set_aside_partition(disk, folder.topic, folder.partition, folder.topic_id)
    journal = f"{disk.root}/{JOURNAL_NAME}"
    if disk.exists(journal):
        disk.rename(journal, free_name(disk, journal, CORRUPT_SUFFIX))
        disk.flush_directory(disk.root)
    return Identity(directory_id, meta.cluster_id, False, Journal.open(disk))
