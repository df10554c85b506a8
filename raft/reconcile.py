"""From the current members (configuration) to the target (assignment), one safe step at a time.

Metadata says which replicas a partition should have; the lineage says which it has. The partition's leader
asks `next_change` whenever a change has committed or a follower has caught up, and proposes the answer.

Safety of each step, taken when the step before has committed:
- A replica becomes a voter only when it holds the log, so that the new majority can commit at once.
- Old and new majorities overlap, since one voter changes at a time.
- A voter that is to go stays until every target replica votes: the number of intact copies never falls below that
  of the smaller of current and target. The one exception is an identity whose node has come back with another
  one: that copy no longer exists, and taking it out of the count *lowers* the majority needed from the rest.
  It goes first where the rest, half of the voters, could commit nothing else: of two voters, one began anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.types import Configuration, ReplicaId


def next_change(
    configuration: Configuration,
    target: Sequence[ReplicaId],
    caught_up: Callable[[ReplicaId], bool],
    *,
    leader: ReplicaId | None = None,
) -> Configuration | None:
    """The next configuration to propose, or None: done, or waiting for a learner to catch up.

    `target` names identities: for a node that lost its log, the new one. `leader`, if it is to go, goes last.
    An empty target (the topic is being deleted) changes nothing.
    """
    if not target:
        return None
    voters, learners = configuration
    gone = [voter for voter in voters if any(_is_later_incarnation(replica, voter) for replica in target)]
    if gone and 2 * len(gone) == len(voters):
        return Configuration(_without(voters, gone[0]), learners)
    for replica in learners:
        if replica not in target:
            return Configuration(voters, _without(learners, replica))
    for replica in target:
        if not configuration.names(replica):
            return Configuration(voters, (*learners, replica))
    for replica in learners:
        if caught_up(replica):
            stale = _same_node(voters, replica)
            if stale is None:
                return Configuration((*voters, replica), _without(learners, replica))
            if len(voters) > 1:
                return Configuration(_without(voters, stale), learners)
    if learners:
        return None
    leaving = [voter for voter in voters if voter not in target]
    leaving.sort(key=lambda voter: voter == leader)
    return Configuration(_without(voters, leaving[0]), learners) if leaving else None


def _without(replicas: tuple[ReplicaId, ...], replica: ReplicaId) -> tuple[ReplicaId, ...]:
    return tuple(other for other in replicas if other != replica)


def _is_later_incarnation(replica: ReplicaId, earlier: ReplicaId) -> bool:
    return (
        replica.node_id == earlier.node_id
        and replica.directory_id == earlier.directory_id
        and replica.incarnation > earlier.incarnation
    )


def _same_node(voters: tuple[ReplicaId, ...], replica: ReplicaId) -> ReplicaId | None:
    return next((voter for voter in voters if voter.node_id == replica.node_id), None)
