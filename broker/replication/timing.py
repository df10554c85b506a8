"""The times of elections and liveness, from a node's settings."""

from __future__ import annotations

from broker.config.node_config import NodeConfig
from broker.replication.replicas import APPEND_BATCH_BYTES
from raft.liveness_types import LivenessTiming
from raft.types import Timing


def raft_timing(config: NodeConfig) -> Timing:
    return Timing(election_timeout_s=config.election_timeout_ms / 1000, append_batch_bytes=APPEND_BATCH_BYTES)


def liveness_timing(config: NodeConfig) -> LivenessTiming:
    """An isolated leader must have stepped down after two election timeouts, a heartbeat included."""
    election_timeout_s = config.election_timeout_ms / 1000
    return LivenessTiming(
        ping_interval_s=config.heartbeat_interval_ms / 1000,
        election_timeout_s=election_timeout_s,
        check_quorum_s=1.5 * election_timeout_s,
    )
