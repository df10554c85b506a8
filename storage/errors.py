"""What storage refuses, apart from the errors of the disk itself (storage/disk.py).

Exception
├── CorruptLogError        durable bytes are not what was written: quarantine the replica, touch nothing
├── WrongTopicError        the folder belongs to another topic of the same name
├── UnfinishedLogError     a folder without `partition.metadata`: if it is empty, its creation never finished
├── JournalCorruptError    the directory lost votes: it needs a new identity
└── DirectoryFormatError   this is no data directory of this node
"""

from __future__ import annotations


class CorruptLogError(Exception):
    """Bytes that were durable once are not what was written (replication.md section 2)."""

    def __init__(self, path: str, position: int, message: str) -> None:
        super().__init__(f"{path} at {position}: {message}")
        self.path = path
        self.position = position


class WrongTopicError(Exception):
    """`partition.metadata` names another topic id than that of the group (replication.md section 4)."""


class UnfinishedLogError(Exception):
    """A partition folder without `partition.metadata`: the process died while it created the log."""


class JournalCorruptError(Exception):
    """A journal record that was durable is bad or missing. What this directory voted is no longer known."""


class DirectoryFormatError(Exception):
    """`meta.properties` is missing, unreadable, or of another node or cluster."""
