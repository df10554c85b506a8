"""Within a life of a replica its term, its commit index and its high watermark never go back (Raft, figure 2), and what
it knows to be committed is never cut off or replaced (replication.md section 1)."""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.replica import Replica
from raft.types import NO_TERM
from storage.log_types import GroupKey


class _Seen(NamedTuple):
    replica: Replica
    term: int
    commit_end: int
    #: Of the last entry that was committed: by log matching it stands for all before it.
    committed_term: int
    high_watermark: int


class NeverBack:
    def __init__(self) -> None:
        self._seen: dict[tuple[int, GroupKey], _Seen] = {}

    def check(self, replica: Replica) -> None:
        group, log = replica.group, replica.log
        at = (group.self_id.node_id, replica.key)
        seen, commit_end = self._seen.get(at), group.commit_end
        if seen is not None and seen.replica is replica:
            name = f"{group.self_id} of {replica.topic}-{replica.partition}"
            assert group.term >= seen.term, f"{name} goes back from term {seen.term} to {group.term}"
            assert commit_end >= seen.commit_end, f"{name}: commit {seen.commit_end} falls to {commit_end}"
            assert replica.high_watermark >= seen.high_watermark, (
                f"{name}: high watermark {seen.high_watermark} falls to {replica.high_watermark}"
            )
            found = _term_before(replica, seen.commit_end)
            assert found == seen.committed_term, (
                f"{name}: its log ends at {log.end_index}; entry {seen.commit_end - 1} was committed with term "
                f"{seen.committed_term} and has term {found}"
            )
        committed_term = _term_before(replica, commit_end)
        self._seen[at] = _Seen(replica, group.term, commit_end, committed_term, replica.high_watermark)

    def cut(self, replica: Replica, to_index: int) -> None:
        """The log is about to be cut: not below what is committed. (The group may know by now that the range which
        takes the place of the rest is committed, too.)"""
        seen = self._seen.get((replica.group.self_id.node_id, replica.key))
        if seen is not None and seen.replica is replica:
            assert to_index >= seen.commit_end, (
                f"{replica.group.self_id} of {replica.topic}-{replica.partition} cuts to {to_index}, committed are "
                f"{seen.commit_end}"
            )


def _term_before(replica: Replica, end_index: int) -> int:
    """NO_TERM: there is no such entry."""
    if not 0 < end_index <= replica.log.end_index:
        return NO_TERM
    return replica.log.lineage.term_at_index(end_index - 1)
