"""One leader after the other: whom voters elect, what a deposed leader forgets, and until when it may answer.

No stories: each seed of the random mix may meet these rules, and some hundred of them surely do."""

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


def _keeps_producers(truncate: Callable[..., None]) -> object:
    def truncated(self: RaftDriver, to_index: int, known_commit: int) -> None:
        producers = self._replica.producers
        truncate(self, to_index, known_commit)
        self._replica.producers = producers

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
        "A replica that truncates its log forgets what the producer state has of the rest (section 8)",
        off((RaftDriver, "_truncate", _keeps_producers)),
        mix=None,
        has_groups=None,
        bound=100,
        is_slow=True,
    ),
    Mutation(
        "round-after-read",
        "A read waits for echoes of a round that begins after it came (section 6; Raft thesis, 6.4)",
        off((NodeLiveness, "begin_round", _last_number_sent)),
        mix=None,
        has_groups=None,
        bound=100,
        is_slow=True,
    ),
)
