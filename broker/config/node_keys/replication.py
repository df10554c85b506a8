"""Replication and elections, and the loop that all of it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import boolean, choice, integer, long, setting


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        long(1),
        "30000",
        """A follower that has not caught up for so long is no longer in sync: it does not count for min.insync.replicas
        above 1, and takes no leadership over from a node that stops.""",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        boolean,
        "true",
        """Whether a leader hands its partition over to the preferred replica, the first of the list, when that has come
        back and caught up.""",
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        integer(1),
        "300",
        "How often each node looks for partitions that it leads in another's place.",
    )
    election_timeout_ms: int = setting(
        "varve.election.timeout.ms",
        integer(150),  # raft.types.Timing: campaigns are spread over as much
        "1000",
        """Silence after which a follower stands for election, at a random moment of the next 150 ms. A leader that
        hears no majority for one and a half times as long steps down.""",
    )
    heartbeat_interval_ms: int = setting(
        "varve.heartbeat.interval.ms",
        integer(5),  # raft.liveness_types.LivenessTiming: changes are told after as much
        "100",
        "How often two nodes tell each other that they live.",
    )
    commit_delay_us: int = setting(
        "varve.commit.delay.us",
        integer(0),
        "1000",
        """A producer with one request in flight that sends again so soon after each answer is waited for by the others
        when it has just been answered, so that all share a flush (as with PostgreSQL's commit_delay). No write waits
        longer than this for all of them together. 0: no write waits.""",
    )
    loop: str = setting(
        "varve.loop",
        choice("uvloop", "asyncio"),
        "uvloop",
        "The event loop; asyncio's own where uvloop is not installed.",
    )
