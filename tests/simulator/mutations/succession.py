"""Leaders and their successors: whom voters elect, what a deposed leader discards, and until when it may answer.

These rules have no story and no mix of their own: within a hundred seeds the random mix finds that one is off."""

from __future__ import annotations

from collections.abc import Callable

from broker.replication.raft_driver import RaftDriver
from raft.group import Group
from raft.liveness import NodeLiveness
from raft.types import Output, ReplicaId, VoteRequest
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import off


def _longest_log_wins(vote_requested: Callable[..., Output]) -> object:
    def requested(self: Group, from_: ReplicaId, request: VoteRequest, now: float) -> Output:
        return vote_requested(self, from_, request._replace(last_term=self.last_term), now)

    return requested


def _keeps_producers(truncate: Callable[..., bool]) -> object:
    def truncated(self: RaftDriver, to_index: int, known_commit: int) -> bool:
        producers = self._replica.producers
        is_done = truncate(self, to_index, known_commit)
        self._replica.producers = producers
        return is_done

    return truncated


def _last_number_sent(_: object) -> object:
    return lambda self: self._number


MUTATIONS = (
    Mutation(
        "election-restriction",
        "A voter grants to nobody whose last term is older, however long the log is (Raft, section 5.4.1)",
        off((Group, "vote_requested", _longest_log_wins)),
        mix=None,
        has_groups=None,
        bound=100,
        is_slow=True,
    ),
    Mutation(
        "producers-after-truncation",
        "A replica that truncates its log discards the producer state of what it cuts off (section 8)",
        off((RaftDriver, "_truncate", _keeps_producers)),
        mix=None,
        has_groups=None,
        bound=100,
        is_slow=True,
    ),
    Mutation(
        "round-after-read",
        "A read waits for echoes of a liveness round that begins after the read arrived (section 6; Raft thesis, 6.4)",
        off((NodeLiveness, "begin_round", _last_number_sent)),
        mix=None,
        has_groups=None,
        bound=100,
        is_slow=True,
    ),
)
