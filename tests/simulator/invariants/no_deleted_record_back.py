"""No deleted record comes back: a reader that sends its epoch is served nothing that ends below a log start that
anybody was shown before it asked (replication.md section 6: a log start is shown once most voters have it)."""

from __future__ import annotations

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey
from tests.simulator.invariants.watermarks_monotone import Watermarks


def check_served(key: GroupKey, floor: Watermarks, header: BatchHeader) -> None:
    """A batch was served; `floor` is of the moment of its request. The batch in which a log starts may begin below."""
    assert header.last_offset >= floor.log_start, (
        f"records {header.base_offset} to {header.last_offset} of {key} are served, "
        f"deleted was all below {floor.log_start}"
    )
