"""Rules that can be switched off, by name: with one off, the simulator has to find a violation (the table in
tests/simulation/MUTATIONS.md). Used by tests and `scripts/simulate` only."""

from __future__ import annotations

from tests.simulator.mutations import (
    compaction,
    coordination,
    flushing,
    groups,
    identity,
    liveness,
    logs,
    membership,
    peers,
    produce,
    producers,
    reassignment,
    removal_bounds,
    succession,
    transactions,
    verification,
    watermarks,
)
from tests.simulator.mutations.kind import Mutation

MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        *flushing.MUTATIONS,
        *logs.MUTATIONS,
        *identity.MUTATIONS,
        *membership.MUTATIONS,
        *reassignment.MUTATIONS,
        *liveness.MUTATIONS,
        *succession.MUTATIONS,
        *watermarks.MUTATIONS,
        *producers.MUTATIONS,
        *compaction.MUTATIONS,
        *removal_bounds.MUTATIONS,
        *coordination.MUTATIONS,
        *verification.MUTATIONS,
        *groups.MUTATIONS,
        *transactions.MUTATIONS,
        *produce.MUTATIONS,
        *peers.MUTATIONS,
    )
}
