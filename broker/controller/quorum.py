"""The metadata quorum as its leader sees it: who votes, who learns, and how far each has got (KIP-595, KIP-836)."""

from __future__ import annotations

import math
from uuid import UUID

from broker.metadata.image import MetadataImage
from broker.replication.replica import Replica
from protocol.controller.brokers import DescribeQuorumResult, QuorumNode, QuorumReplica
from raft.types import ReplicaId

UNKNOWN = -1


def describe(replica: Replica, image: MetadataImage) -> DescribeQuorumResult:
    configuration = replica.group.configuration
    peers = {voter.node_id: image.brokers.get(voter.node_id) for voter in configuration.voters}
    return DescribeQuorumResult(
        leader_id=replica.group.self_id.node_id,
        leader_epoch=replica.leader_epoch,
        high_watermark=replica.high_watermark,
        voters=[_state(replica, voter) for voter in configuration.voters],
        observers=[_state(replica, learner) for learner in configuration.learners],
        nodes=[
            QuorumNode(node_id=node_id, host=broker.peer.host, port=broker.peer.port)
            for node_id, broker in peers.items()
            if broker is not None
        ],
    )


def _state(replica: Replica, member: ReplicaId) -> QuorumReplica:
    group, now, now_ms = replica.group, replica.host.now(), replica.host.now_ms()
    state = QuorumReplica(
        node_id=member.node_id,
        directory_id=UUID(bytes=member.directory_id),
        end_offset=UNKNOWN,
        last_contact_ms=UNKNOWN,
        last_caught_up_ms=UNKNOWN,
    )
    if member == group.self_id:
        state.end_offset, state.last_caught_up_ms = replica.log.end_offset, now_ms
        return state
    progress = group.progress_of(member)
    if progress is None:
        return state
    state.end_offset = replica.log.lineage.offset_of_index(progress.match_end)
    if progress.match_end == group.end_index and progress.reachable:
        # It has all there is: nothing is owed, and nothing is said beside that both nodes live.
        state.last_contact_ms = state.last_caught_up_ms = now_ms
        return state

    def wall_ms(loop_time: float) -> int:
        return UNKNOWN if math.isinf(loop_time) else now_ms - round((now - loop_time) * 1000)

    state.last_contact_ms = wall_ms(progress.last_contact)
    state.last_caught_up_ms = wall_ms(progress.caught_up_at)
    return state
