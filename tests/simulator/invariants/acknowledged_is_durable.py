"""What a follower acknowledges is durable, by the disk and not by its own word (replication.md section 6), and stays:
after any crash the same identity holds it again, unless a leader made it cut it off (Raft, figure 2: persistent state;
replication.md section 3 for identities)."""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.replica import Replica
from raft.types import NO_TERM, ReplicaId
from storage.log_types import GroupKey
from tests.simulator.durable_log import DurableLogs
from tests.simulator.invariants.identity_kept import IdentityKept


class _Acknowledged(NamedTuple):
    end_index: int
    #: Of the entry before `end_index`.
    term: int


class AcknowledgedIsDurable:
    def __init__(self, durable: DurableLogs, identities: IdentityKept) -> None:
        self._durable = durable
        self._identities = identities
        self._acknowledged: dict[tuple[GroupKey, ReplicaId], _Acknowledged] = {}

    def acknowledged(self, replica: Replica, end_index: int) -> None:
        """It tells a leader that everything below is durable here; a leader tells itself."""
        identity = replica.group.self_id
        known = self._acknowledged.get((replica.key, identity))
        if end_index == 0 or (known is not None and known.end_index >= end_index):
            return
        assert end_index <= replica.log.end_index, f"{identity} of {replica.key} acknowledges {end_index}"
        term = replica.log.lineage.term_at_index(end_index - 1)
        durable = self._durable.of(identity.node_id, replica.topic, replica.key)
        is_corrupt = not self._identities.is_intact(replica.key, identity)
        is_durable = durable is not None and durable.holds(end_index, term)
        assert is_durable or is_corrupt, (
            f"{identity} of {replica.topic}-{replica.partition} acknowledges {end_index} of term {term}; its disk "
            f"holds {None if durable is None else durable.end_index}"
        )
        self._acknowledged[replica.key, identity] = _Acknowledged(end_index, term)

    def has_acknowledged(self, key: GroupKey, identity: ReplicaId, end_index: int) -> bool:
        known = self._acknowledged.get((key, identity))
        return known is not None and known.end_index >= end_index

    def nodes_with(self, key: GroupKey, end_index: int) -> set[int]:
        """Where some identity has acknowledged it, whatever became of that one."""
        return {
            identity.node_id
            for (of, identity), known in self._acknowledged.items()
            if of == key and known.end_index >= end_index
        }

    def cut(self, replica: Replica, to_index: int) -> None:
        """A leader replaces what it has from here on; with an install, all of it that is above."""
        at = (replica.key, replica.group.self_id)
        known = self._acknowledged.get(at)
        if known is not None and known.end_index > to_index:
            term = replica.log.lineage.term_at_index(to_index - 1) if to_index else NO_TERM
            self._acknowledged[at] = _Acknowledged(to_index, term)

    def opened(self, replica: Replica) -> None:
        """Recovery is over."""
        log, identity = replica.log, replica.group.self_id
        known = self._acknowledged.get((replica.key, identity))
        if known is None or known.end_index == 0:
            return
        found = log.lineage.term_at_index(known.end_index - 1) if known.end_index <= log.end_index else None
        assert found == known.term, (
            f"{identity} of {replica.topic}-{replica.partition} comes back with a log that ends at {log.end_index} "
            f"and entry {known.end_index - 1} of term {found}; it had acknowledged it with term {known.term}"
        )
