"""Nothing acknowledged stays unseen: who has read a healed partition to its end has seen every acknowledged batch that
retention left (users.md: "unseen" goes to zero)."""

from __future__ import annotations

from collections.abc import Collection

from storage.log_types import GroupKey
from tests.simulator.invariants.acknowledged_never_lost import AcknowledgedNeverLost


def check_all_seen(
    acknowledged: AcknowledgedNeverLost, key: GroupKey, seen: Collection[int], log_start: int
) -> None:
    """`seen`: base offsets of the batches that a reader got who followed the partition to its end."""
    promised = acknowledged.batches.get(key, {})
    unseen = [offset for offset in promised if offset >= log_start and offset not in seen]
    assert not unseen, f"{key} was read to its end, acknowledged and never seen: {unseen}"
