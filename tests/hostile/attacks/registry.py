"""All attacks, by name, in the order in which they are tried."""

from __future__ import annotations

from tests.hostile.attacks import abandoned, batches, connections, long_requests, peers, state
from tests.hostile.attacks.attack import Attack

_FUNCTIONS: tuple[Attack, ...] = (
    peers.strangers,
    connections.unfinished_frames,
    connections.large_frames,
    connections.slow_frames,
    connections.idle_connections,
    connections.many_connections,
    connections.frame_sizes,
    connections.unread_answers,
    long_requests.long_requests,
    abandoned.abandoned_requests,
    batches.bombs,
    batches.poison,
    state.classic_groups,
    state.consumer_groups,
    state.committed_offsets,
    state.fetch_sessions,
    state.producer_ids,
    state.settings_of_groups,
    state.client_quotas,
)
ATTACKS: dict[str, Attack] = {attack.__name__.replace("_", "-"): attack for attack in _FUNCTIONS}


def description(name: str) -> str:
    """What the attack does, in a sentence or two."""
    return " ".join((ATTACKS[name].__doc__ or "").split())
