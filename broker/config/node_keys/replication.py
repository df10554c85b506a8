"""Replication, elections, and the event loop."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import boolean, choice, integer, long, setting


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        long(1),
        "30000",
        """A follower that has not caught up for this long is out of sync. It does not count for min.insync.replicas
        above 1, and leadership is not transferred to it when a node stops.""",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        boolean,
        "true",
        """Whether a leader transfers its leadership to the preferred replica, the first of the list, when that has
        caught up.""",
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        integer(1),
        "300",
        "How often each node looks for partitions that it leads without being their preferred replica.",
    )
    election_timeout_ms: int = setting(
        "varve.election.timeout.ms",
        integer(150),  # raft.types.Timing spreads campaigns over 150 ms.
        "1000",
        """A follower that has not heard its leader for this long campaigns, at a random time within the next 150 ms. A
        leader that has not heard a majority for one and a half times as long steps down.""",
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        integer(1024),
        str(8 << 20),
        "The segment.bytes of __cluster_metadata. (1 GiB in Kafka, which writes snapshots beside the log.)",
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms",
        long(1),
        str(7 * 24 * 3600 * 1000),
        "The segment.ms of __cluster_metadata.",
    )
    heartbeat_interval_ms: int = setting(
        "varve.heartbeat.interval.ms",
        integer(5),  # raft.liveness_types.LivenessTiming tells changes after 5 ms.
        "100",
        "How often two nodes send each other a heartbeat.",
    )
    commit_delay_us: int = setting(
        "varve.commit.delay.us",
        integer(0),
        "1000",
        """How long a write may wait for writes of other producers, so that all of them share a flush (as with
        PostgreSQL's commit_delay). It waits only for producers with one request in flight that were just answered and
        usually send again within this time. 0: no write waits.""",
    )
    loop: str = setting(
        "varve.loop",
        choice("uvloop", "asyncio"),
        "uvloop",
        "The event loop. asyncio's own is used if uvloop is not installed.",
    )
