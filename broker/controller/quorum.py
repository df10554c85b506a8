"""The metadata quorum as its leader sees it: who votes, who learns, and how far each has got (KIP-595, KIP-836)."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from broker.metadata.image import MetadataImage
from broker.replication.replica import Replica
from raft.types import ReplicaId

UNKNOWN = -1


def describe(replica: Replica, image: MetadataImage) -> dict[str, Any]:
    """`voters` and `observers` are [node id, directory id, log end offset, last heard, last caught up]; the two moments
    in ms of the leader's wall clock, -1 where they are not known. `nodes` are [node id, host, port] of the voters."""
    configuration = replica.group.configuration
    peers = {voter.node_id: image.brokers.get(voter.node_id) for voter in configuration.voters}
    return {
        "leader": replica.group.self_id.node_id,
        "epoch": replica.leader_epoch,
        "high_watermark": replica.high_watermark,
        "voters": [_state(replica, voter) for voter in configuration.voters],
        "observers": [_state(replica, learner) for learner in configuration.learners],
        "nodes": [(node_id, *broker.peer) for node_id, broker in peers.items() if broker is not None],
    }


def _state(replica: Replica, member: ReplicaId) -> tuple[int, str, int, int, int]:
    group, now, now_ms = replica.group, replica.host.now(), replica.host.now_ms()
    directory_id = str(UUID(bytes=member.directory_id))
    if member == group.self_id:
        return member.node_id, directory_id, replica.log.end_offset, UNKNOWN, now_ms
    progress = group.progress_of(member)
    if progress is None:
        return member.node_id, directory_id, UNKNOWN, UNKNOWN, UNKNOWN
    end_offset = replica.log.lineage.offset_of_index(progress.match_end)
    if progress.match_end == group.end_index and progress.reachable:
        # It has all there is: nothing is owed, and nothing is said beside that both nodes live.
        return member.node_id, directory_id, end_offset, now_ms, now_ms

    def wall_ms(loop_time: float) -> int:
        return UNKNOWN if math.isinf(loop_time) else now_ms - round((now - loop_time) * 1000)

    heard, caught_up = wall_ms(progress.last_contact), wall_ms(progress.caught_up_at)
    return member.node_id, directory_id, end_offset, heard, caught_up
