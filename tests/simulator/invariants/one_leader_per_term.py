"""Election safety: at most one leader can be elected in a given term (Raft, Ongaro and Ousterhout 2014, figure 3)."""

from __future__ import annotations

from raft.types import ReplicaId
from storage.log_types import GroupKey


class OneLeaderPerTerm:
    def __init__(self) -> None:
        self.by_term: dict[tuple[GroupKey, int], ReplicaId] = {}

    def leads(self, key: GroupKey, term: int, replica: ReplicaId) -> None:
        known = self.by_term.setdefault((key, term), replica)
        assert known == replica, f"term {term} of {key} has two leaders: {known} and {replica}"
