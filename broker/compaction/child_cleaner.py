"""A pass of compaction, or a digest of a log, in a process of its own, which this node starts: the heavy loop never
holds up the event loop.

The child reads the log and builds segments in a folder of its own. What changes the log is done by the node, between
two segments (`storage.log_cleaning`). Both sides talk in pickled values, each behind its length.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import NamedTuple

from storage.batch_scan import UncleanableError
from storage.compaction.view_digest import RangeDigest
from storage.disk import DiskFullError, MissingPathError
from storage.errors import CorruptLogError
from storage.log_cleaning import CleaningEvent, CleaningTask
from storage.log_digest import DigestReady, DigestTask

LENGTH = struct.Struct(">I")
#: From the node: the segment is in place.
GO_ON = b"\0"
_CHILD_MODULE = "broker.compaction.child"


class CleanerDiedError(Exception):
    """The child ended without a word: killed, out of memory, or by a mistake of ours. Its stderr says more."""


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


class ChildCleaner:
    """Implements `broker.environment.Cleaner`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._children: set[asyncio.subprocess.Process] = set()

    def kill(self) -> None:
        """At once, and for good: this process becomes another node, which clears what its children build."""
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()

    async def clean(self, task: CleaningTask, max_bytes_per_second: float) -> AsyncGenerator[CleaningEvent]:
        async with aclosing(self._run(task, max_bytes_per_second)) as events:
            async for event in events:
                assert not isinstance(event, DigestReady)
                yield event

    async def digest(self, task: DigestTask, max_bytes_per_second: float) -> RangeDigest:
        async with aclosing(self._run(task, max_bytes_per_second)) as events:
            async for event in events:
                assert isinstance(event, DigestReady)
                return event.digest
        raise AssertionError("a digest ends with one")

    async def _run(
        self, task: CleaningTask | DigestTask, max_bytes_per_second: float
    ) -> AsyncGenerator[CleaningEvent | DigestReady]:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _CHILD_MODULE, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdin is not None and child.stdout is not None
        self._children.add(child)
        try:
            order = pickle.dumps(Order(self._root, task, max_bytes_per_second))
            child.stdin.write(LENGTH.pack(len(order)) + order)
            while True:
                said = await _read(child.stdout)
                if said is None:
                    return
                if isinstance(said, Failure):
                    raise said.error(task.directory)
                yield said
                child.stdin.write(GO_ON)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise CleanerDiedError(f"the cleaner of {task.directory} died") from error
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
            self._children.discard(child)


async def _read(stream: asyncio.StreamReader) -> CleaningEvent | DigestReady | Failure | None:
    """The next value. None: everything is done."""
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    said: CleaningEvent | DigestReady | Failure | None = pickle.loads(await stream.readexactly(length))
    return said
