"""A pass of compaction, or a digest of a log, in a process of its own, which this node starts: the heavy loop never
holds up the event loop.

The child reads the log and builds segments in a folder of its own. What changes the log is done by the node, between
two segments (`storage.log_cleaning`).
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from broker.compaction.child_messages import GO_ON, LENGTH, Failure, Order
from broker.isolated import isolated_command
from storage.compaction.view_digest import RangeDigest
from storage.log_cleaning import CleaningEvent, CleaningTask
from storage.log_digest import DigestReady, DigestTask

_CHILD_MODULE = "broker.compaction.child"


class CleanerDiedError(Exception):
    """The child did not start: no memory, process id or file descriptor is left, or the interpreter is gone. Or it
    ended without a word: killed, out of memory, or by a mistake of ours. Its stderr says more."""


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
        try:
            child = await asyncio.create_subprocess_exec(
                *isolated_command(_CHILD_MODULE, str(os.getpid())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CleanerDiedError(f"the cleaner of {task.directory} did not start: {error}") from error
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
