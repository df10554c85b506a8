"""What a replica tells of its compaction is durable on its disk: MCCO, MXFO, MTRO and MXRO
(coordinated-compaction.md, section 2, F3). Others remove records because of it."""

from __future__ import annotations

from collections.abc import Mapping

from raft.types import ReplicaId
from storage.journal_records import Bounds
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_journal import durable_journal


class ToldBoundsAreDurable:
    def __init__(self, disks: Mapping[int, MemoryDisk]) -> None:
        self._disks = disks
        #: What was found durable of each replica, and is not looked for again.
        self._durable: dict[tuple[GroupKey, ReplicaId], Bounds] = {}

    def told(self, key: GroupKey, identity: ReplicaId, **values: int) -> None:
        """`values`: fields of `Bounds`."""
        known = self._durable.get((key, identity), Bounds(key))
        if _covers(known, values):
            return
        state = durable_journal(self._disks[identity.node_id]).get(key)
        durable = Bounds(key) if state is None or state.bounds is None else state.bounds
        assert _covers(durable, values), f"{identity} of {key} tells {values}, durable is {durable}"
        self._durable[key, identity] = durable


def _covers(durable: Bounds, values: Mapping[str, int]) -> bool:
    return all(value <= getattr(durable, name) for name, value in values.items())
