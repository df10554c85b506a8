"""CRC-32C (Castagnoli), the checksum of record batches and of our own files.

`crc32c` uses the processor's instruction (20 GB/s for large buffers). Where there is no wheel of it,
crcmod does the same at 0.4 GB/s or, without its C part, a hundred times slower.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.schema import Buffer


def _load() -> Callable[[Buffer, int], int]:
    try:
        from crc32c import crc32c as hardware  # one of two, whichever is there

        return hardware
    except ImportError:
        from crcmod.predefined import mkPredefinedCrcFun

        table_driven = mkPredefinedCrcFun("crc-32c")
        return lambda data, value: table_driven(bytes(data), value)


_crc32c = _load()


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C of `data`, continued from `value`."""
    return _crc32c(data, value)
