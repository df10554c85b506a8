"""What a node and the process that cleans for it say to each other: pickled values, each behind its length."""

from __future__ import annotations

import struct
from typing import NamedTuple

from storage.batch_scan import UncleanableError
from storage.disk import DiskFullError, MissingPathError
from storage.errors import CorruptLogError
from storage.log_cleaning import CleaningTask
from storage.log_digest import DigestTask

LENGTH = struct.Struct(">I")
#: From the node: the segment is in place.
GO_ON = b"\0"


class Order(NamedTuple):
    """The first thing that a child is told. Its argument is the process id of its node."""

    root: str
    """The data directory."""
    task: CleaningTask | DigestTask
    max_bytes_per_second: float


class Failure(NamedTuple):
    """What ended the work."""

    kind: str
    message: str

    def error(self, directory: str) -> Exception:
        match self.kind:
            case "corrupt":
                return CorruptLogError(directory, 0, self.message)
            case "full":
                return DiskFullError(self.message)
            case "missing":
                return MissingPathError(self.message)
            case _:
                return UncleanableError(self.message)
