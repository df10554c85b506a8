"""CRC-32C (Castagnoli), the checksum of record batches and of our own files.

`crc32c` uses the processor's instruction (20 GB/s for large buffers). Where there is no wheel of it,
crcmod does the same at 0.4 GB/s or, without its C part, a hundred times slower.
"""

from __future__ import annotations

from typing import Protocol

from protocol.schema import Buffer


class _Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> _Crc32c:
    try:
        from crc32c import crc32c as hardware  # one of two, whichever is there

        return hardware
    except ImportError:
        from crcmod.predefined import mkPredefinedCrcFun

        table_driven = mkPredefinedCrcFun("crc-32c")
        return lambda data, value=0, /: table_driven(bytes(data), value)


crc32c = _load()
"""CRC-32C of some data, continued from a value."""
