"""The other seams of a node: network, clock and cleaner (architecture.md section 2).

Monotonic time is `asyncio.get_running_loop().time()`, but where microseconds count: uvloop's has milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from storage.compaction.view_digest import RangeDigest
from storage.log_cleaning import CleaningEvent, CleaningTask
from storage.log_digest import DigestTask

#: Makes the receiving side of a connection.
ProtocolFactory = Callable[[], asyncio.BufferedProtocol]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch. May jump; never used for elections or timeouts."""

    def steady_s(self) -> float:
        """Seconds from any beginning, counted in microseconds or finer; never goes back."""

    def worked_s(self) -> float:
        """Seconds that this process has worked, from any beginning: what the requests of a client cost."""


class Cleaner(Protocol):
    """Does what is heavy of a pass of compaction, or of a comparison of replicas, beside the loop
    (`storage.log_cleaning`, `storage.log_digest`)."""

    def clean(self, task: CleaningTask, max_bytes_per_second: float) -> AsyncGenerator[CleaningEvent]:
        """All events of the pass but `BytesMoved`. It goes on when the next one is asked for. Raises what `clean`
        raises, and CleanerDiedError."""

    async def digest(self, task: DigestTask, max_bytes_per_second: float) -> RangeDigest:
        """Raises what `digest_log` raises, and CleanerDiedError."""


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting. Connections that were accepted stay open."""


class Network(Protocol):
    """Byte streams. Both sides are asyncio `BufferedProtocol`s, given real or simulated transports.

    Of the transport the product uses: write, writelines, close, abort, is_closing, get_extra_info("peername"
    and "sockname"), get_write_buffer_size, set_write_buffer_limits, pause_reading, resume_reading.
    """

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> Listener:
        """Listen on host:port (port 0: any). "localhost" binds both address families. `for_peers`: for those who
        `connect`, who may have a shorter way where they are near."""

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.BaseTransport:
        """Raises OSError where nobody answers."""
