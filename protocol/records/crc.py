"""CRC-32C (Castagnoli), the checksum of record batches and of our own files.

The package `crc32c` uses the processor's instruction (20 GB/s for large buffers). If it is not installed, crcmod
computes the same at 0.4 GB/s, or without its C extension a hundred times slower.
"""

from __future__ import annotations

from typing import Protocol

from protocol.schema import Buffer


class _Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> _Crc32c:
    try:
        from crc32c import crc32c as hardware  # The import fails where there is no wheel.

        return hardware
    except ImportError:
        from crcmod.predefined import mkPredefinedCrcFun

        table_driven = mkPredefinedCrcFun("crc-32c")
        return lambda data, value=0, /: table_driven(bytes(data), value)


crc32c = _load()
"""(data, value) -> CRC-32C of the data. `value` is the CRC of the data before it."""
