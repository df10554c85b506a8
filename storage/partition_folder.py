"""The folder of one partition: its name and its `partition.metadata`, both as in Kafka."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from uuid import UUID

from storage.disk import Disk
from storage.errors import CorruptLogError, DirectoryFormatError, UnfinishedLogError, WrongTopicError
from storage.small_files import read_file, write_file

METADATA_NAME = "partition.metadata"

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

#: A log that is being built beside the old one (replication.md section 7). Its name is made of the topic id, because
#: that of the topic may be as long as a name can be. INSTALL_TARGET_NAME holds the name that it will take.
INSTALL_SUFFIX = "-install"
INSTALL_TARGET_NAME = "install-target"

#: The limit of Linux and macOS. Names of topics are ASCII.
_MAX_NAME_BYTES = 255


def encode_uuid(value: UUID) -> str:
    """Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """Raises DirectoryFormatError for anything but the 22 characters of a UUID."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise DirectoryFormatError(f"{text!r} is no uuid") from error


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def install_folder(disk: Disk, topic_id: UUID, partition: int) -> str:
    return f"{disk.root}/{topic_id.hex}-{partition}{INSTALL_SUFFIX}"


def write_install_target(disk: Disk, building: str, name: str) -> None:
    write_file(disk, f"{building}/{INSTALL_TARGET_NAME}", name.encode("ascii"))


def read_install_target(disk: Disk, building: str) -> str:
    """Of an install that is whole: the name of the folder that it replaces."""
    return read_file(disk, f"{building}/{INSTALL_TARGET_NAME}").decode("ascii")


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """(topic, partition), or None for a name that is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdecimal():
        return None
    if partition != str(int(partition)):
        return None
    return topic, int(partition)


def read_topic_id(disk: Disk, directory: str) -> UUID:
    """The topic id in `partition.metadata`. Raises UnfinishedLogError if there is no such file, CorruptLogError if it
    is corrupt: that is the fault of one replica, not of the directory."""
    path = f"{directory}/{METADATA_NAME}"
    if not disk.exists(path):
        raise UnfinishedLogError(directory)
    text = read_file(disk, path).decode("ascii", "replace")
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptLogError(path, 0, "not a version 0 partition.metadata")
    try:
        return decode_uuid(fields["topic_id"])
    except DirectoryFormatError as error:
        raise CorruptLogError(path, 0, str(error)) from error


def belongs_to(disk: Disk, directory: str, topic_id: UUID) -> bool:
    """Whether the folder is there and names this topic id."""
    try:
        return read_topic_id(disk, directory) == topic_id
    except (UnfinishedLogError, CorruptLogError):
        return False


def check_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Raises WrongTopicError if the folder belongs to another topic of the same name."""
    found = read_topic_id(disk, directory)
    if found != topic_id:
        raise WrongTopicError(f"{directory} belongs to topic {encode_uuid(found)}")


def write_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Write `partition.metadata`, which comes last when a log is created: a folder that has it is whole. Its name is
    durable with the folder's flush."""
    write_topic_ids(disk, [(directory, topic_id)])


def write_topic_ids(disk: Disk, topics: Sequence[tuple[str, UUID]]) -> None:
    """The same for many folders."""
    paths = [f"{directory}/{METADATA_NAME}" for directory, _ in topics]
    files = []
    for path, (_, topic_id) in zip(paths, topics, strict=True):
        file = disk.open(path + ".tmp", create=True)
        file.truncate(0)
        file.append([f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode("ascii")])
        files.append(file)
    disk.flush_together(files)
    for path, file in zip(paths, files, strict=True):
        file.close()
        disk.rename(path + ".tmp", path)


def free_name(disk: Disk, path: str, suffix: str) -> str:
    """`<path><suffix>`, or a numbered name if that exists: a replica may be discarded twice before the first is
    deleted. A long name is cut: with the suffix it would be no name for a file."""
    parent, slash, stem = path.rpartition("/")
    ending, number = suffix, 1
    while disk.exists(name := f"{parent}{slash}{stem[: _MAX_NAME_BYTES - len(ending)]}{ending}"):
        ending, number = f".{number}{suffix}", number + 1
    return name


def free_name_with_id(disk: Disk, path: str, topic_id: UUID, suffix: str) -> str:
    """As `free_name`. The id tells topics of the same name apart."""
    return free_name(disk, path, f".{topic_id.hex}{suffix}")
