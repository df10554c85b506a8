"""What compaction does for each record: in C where that was built (native/), otherwise in Python (table_twin.py).

A record of 100 bytes costs some 80 ns in the map and as much in the filter in C, and 0.9 us each in Python
(scripts/bench-compaction). The twin's docstrings tell what to give and what to get. Both refuse the same payloads, and
a map ends at the same batch with both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from protocol.schema import Buffer
from storage.compaction import table_twin
from storage.compaction.native_module import native
from storage.compaction.scan import scan_records
from storage.compaction.table_twin import Split

__all__ = ["KeyTable", "NativeKeyTable", "Split", "new_table", "rebased"]


class KeyTable(Protocol):
    """`table_twin.KeyTable` and `NativeKeyTable`."""

    def __len__(self) -> int: ...

    def add(self, payload: Buffer, header: BatchHeader) -> bool: ...

    def is_superseded(self, key: bytes, offset: int) -> bool: ...

    def split(self, payload: Buffer, header: BatchHeader, *, tombstones_go: bool) -> Split: ...


class NativeKeyTable:
    """Takes 24 bytes for each slot of the table, and one in ten stays free. It grows in place, so at no time does it
    take more than a full one."""

    def __init__(self, capacity: int) -> None:
        assert native is not None
        self._table = native.KeyTable(capacity)

    def __len__(self) -> int:
        return len(self._table)

    def add(self, payload: Buffer, header: BatchHeader) -> bool:
        try:
            fits: bool = self._table.add(payload, header.count, header.last_offset_delta, header.base_offset)
        except ValueError:
            raise _malformed(payload, header) from None
        return fits

    def is_superseded(self, key: bytes, offset: int) -> bool:
        is_newer: bool = self._table.is_superseded(key, offset)
        return is_newer

    def split(self, payload: Buffer, header: BatchHeader, *, tombstones_go: bool) -> Split:
        try:
            return Split(
                *self._table.split(
                    payload,
                    header.count,
                    header.last_offset_delta,
                    header.base_offset,
                    header.base_timestamp,
                    tombstones_go,
                )
            )
        except ValueError:
            raise _malformed(payload, header) from None


def _malformed(payload: Buffer, header: BatchHeader) -> KafkaError:
    """The native part only says that something is wrong. The twin knows where, and what."""
    try:
        for _ in scan_records(bytes(payload), header):
            pass
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is malformed")


new_table: Callable[[int], KeyTable]
rebased: Callable[[Buffer, int], bytes]
if native is None:
    new_table, rebased = table_twin.KeyTable, table_twin.rebased
else:
    new_table, rebased = NativeKeyTable, native.rebased
