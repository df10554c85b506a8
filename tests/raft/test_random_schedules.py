"""Random schedules: loss, repetition, reordering, crashes with unsynced writes, membership, installs.

`cluster.py` checks Raft's properties after every step. Then the faults stop, and the group must commit again.
The mutations at the end show that the checks bite: each takes one rule away, and the same schedules find a
violation.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from raft import election
from raft.follower import Follower
from raft.leader import Leader
from raft.reconcile import next_change
from raft.types import AppendReply, Configuration, Output, ProposalRefusedError, ReplicaId, Role
from tests.raft.cluster import Cluster, Host, ViolationError, replica

STEPS = 2000


class Driver:
    """One seeded run. Which faults there are, and how often, differs from seed to seed (swarm testing)."""

    def __init__(self, seed: int, **cluster_options: object) -> None:
        self.rng = random.Random(seed)
        voters = self.rng.choice((1, 2, 3, 3, 3, 5))
        self.cluster = Cluster(seed, voters, **cluster_options)  # type: ignore[arg-type]
        self.target = [replica(node_id) for node_id in range(1, voters + 1)]
        actions: list[tuple[Callable[[], None], float]] = [
            (self.deliver, self.rng.choice((15, 30, 60))),
            (self.flush, self.rng.choice((10, 25))),
            (self.append, 6),
            (self.tick, 8),
            (self.pause, self.rng.choice((0.3, 2))),
            (self.suspect, self.rng.choice((0.3, 1, 3))),
            (self.drop, self.rng.choice((0, 1, 4))),
            (self.repeat, self.rng.choice((0, 2, 5))),
            (self.crash, self.rng.choice((0, 0.5, 3))),
            (self.isolate, self.rng.choice((0, 1, 3))),
            (self.lose_quorum, 0.3),
            (self.hear_leader, 2),
            (self.send_commits, 3),
            (self.send_deferred, self.rng.choice((0, 3))),
            (self.relink, self.rng.choice((0, 1))),
            (self.transfer, self.rng.choice((0, 0.5))),
            (self.change_target, self.rng.choice((0, 0.5))),
            (self.reconcile, 5),
            (self.raise_log_start, self.rng.choice((0, 0.5))),
            (self.wipe, self.rng.choice((0, 0.3))),
            (self.finish_install, 3),
        ]
        self.actions = [action for action, _ in actions]
        self.weights = [weight for _, weight in actions]
        #: Steps per second: how much happens within one election timeout.
        self.pace = self.rng.choice((300, 1000, 3000))
        #: What goes to this node, or comes from it, is lost.
        self.isolated: int | None = None
        #: Packets overtake each other.
        self.reorders = self.rng.random() < 0.5

    def any_host(self) -> Host:
        return self.rng.choice(list(self.cluster.hosts.values()))

    def run(self) -> None:
        for _ in range(STEPS):
            self.cluster.now += self.rng.expovariate(self.pace)
            self.rng.choices(self.actions, self.weights)[0]()

    # ---------------------------------------------------------------- actions

    def deliver(self) -> None:
        links = self.cluster.links
        for _ in range(min(len(links), self.rng.randint(1, 4))):
            position = self.rng.randrange(len(links)) if self.reorders else 0
            if self.isolated in (links[position].from_.node_id, links[position].to.node_id):
                links.pop(position)
            else:
                self.cluster.deliver(position)

    def isolate(self) -> None:
        """Cut one node off, most often the leader, whom the others then miss. It goes on by itself."""
        if self.isolated is not None and self.rng.random() < 0.5:
            self.isolated = None
            return
        leader = self.cluster.leader()
        host = self.any_host() if leader is None or self.rng.random() < 0.3 else leader
        self.isolated = host.self_id.node_id
        for other in self.cluster.hosts.values():
            if other.group.leader == host.self_id and other is not host:
                other.apply(other.group.leader_suspected(self.cluster.now))

    def drop(self) -> None:
        if self.cluster.links:
            self.cluster.links.pop(self.rng.randrange(len(self.cluster.links)))

    def repeat(self) -> None:
        if self.cluster.links:
            self.cluster.deliver(self.rng.randrange(len(self.cluster.links)), keep=True)

    def flush(self) -> None:
        for host in self.cluster.hosts.values():
            if self.rng.random() < 0.5:
                continue
            if host.flush is None:
                host.begin_flush()
            else:
                host.finish_flush()

    def append(self) -> None:
        host = self.cluster.leader() if self.rng.random() < 0.8 else self.any_host()
        if host is not None and host.group.role is Role.LEADER:
            host.append([self.rng.randint(1, 3) for _ in range(self.rng.randint(1, 3))])

    def tick(self) -> None:
        for host in self.cluster.hosts.values():
            host.apply(host.group.tick(self.cluster.now))

    def pause(self) -> None:
        self.cluster.now += self.rng.choice((0.05, 0.2))

    def suspect(self) -> None:
        """By one host, or by all at once: one alone is refused as long as the others hear the leader."""
        hosts = list(self.cluster.hosts.values())
        for host in hosts if self.rng.random() < 0.7 else [self.any_host()]:
            host.apply(host.group.leader_suspected(self.cluster.now))

    def lose_quorum(self) -> None:
        host = self.any_host()
        host.apply(host.group.quorum_lost(self.cluster.now))

    def hear_leader(self) -> None:
        leader, host = self.any_host(), self.any_host()
        if leader.group.role is Role.LEADER:
            host.apply(host.group.leader_heard(leader.self_id, leader.group.term, self.cluster.now))

    def send_commits(self) -> None:
        host = self.any_host()
        host.apply(host.group.send_commits(self.cluster.now))

    def send_deferred(self) -> None:
        host = self.any_host()
        host.apply(host.group.send_deferred(self.cluster.now))

    def relink(self) -> None:
        host, node_id = self.any_host(), self.any_host().self_id.node_id
        host.group.peer_lost(node_id)
        if self.rng.random() < 0.8:
            host.apply(host.group.peer_reachable(node_id, self.cluster.now))

    def crash(self) -> None:
        self.any_host().crash_and_restart()

    def transfer(self) -> None:
        host = self.any_host()
        try:
            out = host.group.transfer_leadership(self.any_host().self_id, self.cluster.now)
        except ProposalRefusedError:
            return
        host.apply(out)

    def change_target(self) -> None:
        """Another assignment, of the present nodes and one more."""
        nodes = list(self.cluster.hosts)
        if len(nodes) < 6:
            nodes.append(max(nodes) + 1)
            self.cluster.add_host(replica(nodes[-1]))
        chosen = self.rng.sample(nodes, min(len(nodes), len(self.target)))
        self.target = [self.cluster.hosts[node_id].self_id for node_id in chosen]

    def reconcile(self) -> None:
        host = self.cluster.leader()
        if host is None:
            return
        group, now = host.group, self.cluster.now
        change = next_change(
            group.configuration,
            self.target,
            lambda one: group.is_caught_up(one, now, 0.3),
            leader=host.self_id,
        )
        if change is None:
            return
        try:
            out = group.propose_configuration(change, now)
        except ProposalRefusedError:
            return
        host.apply(out)

    def raise_log_start(self) -> None:
        host = self.cluster.leader()
        if host is None or not host.group.is_established:
            return
        committed_offset = self._offset(host)
        ends = [batch.end_offset for batch in host.log.batches if batch.end_offset <= committed_offset]
        start = self.rng.choice(ends[-3:]) if ends else 0
        if start > host.watermarks.log_start:
            host.raise_log_start(start)

    @staticmethod
    def _offset(host: Host) -> int:
        """Offset of the first record at or above the commit index."""
        end = host.group.commit_end
        return end - sum(row.index < end for row in host.log.rows)

    def wipe(self) -> None:
        """A disk is lost, but only while all other voters of every configuration are intact (replication.md
        3)."""
        host = self.any_host()
        for other in self.cluster.hosts.values():
            for configuration in (other.group.configuration, other.group.committed_configuration):
                members = [one for one in configuration.voters if one != host.self_id]
                if len(members) < 2 or any(self.cluster.host_of(one) is None for one in members):
                    return
        self.replace(host.self_id)

    def replace(self, old: ReplicaId) -> None:
        new = old._replace(incarnation=old.incarnation + 1)
        self.cluster.add_host(new)
        self.target = [new if one == old else one for one in self.target]

    def finish_install(self) -> None:
        self.any_host().finish_install()

    # ---------------------------------------------------------------- after the faults

    def heal(self) -> None:
        """No more faults: every packet arrives in order, every flush ends, liveness tells the truth."""
        cluster = self.cluster
        for host in cluster.hosts.values():
            for node_id in cluster.hosts:
                host.apply(host.group.peer_reachable(node_id, cluster.now))
        for _ in range(400):
            cluster.now += 0.05
            while cluster.links:
                cluster.deliver(0)
            leader = cluster.leader()
            for host in cluster.hosts.values():
                group = host.group
                host.finish_install()
                host.begin_flush()
                host.finish_flush()
                self._tell_truth(host, leader)
                host.apply(group.tick(cluster.now))
                host.apply(group.send_commits(cluster.now))
                host.apply(group.send_deferred(cluster.now))
            self.reconcile()
            if self.is_settled():
                return
        raise ViolationError("no progress although all faults have stopped")

    def _tell_truth(self, host: Host, leader: Host | None) -> None:
        group, now = host.group, self.cluster.now
        if leader is not None and leader is not host:
            host.apply(group.term_seen(leader.group.term, now))
            if group.term == leader.group.term:
                host.apply(group.leader_heard(leader.self_id, leader.group.term, now))
            else:
                leader.apply(leader.group.term_seen(group.term, now))
        followed = None if group.leader is None else self.cluster.host_of(group.leader)
        if group.leader is not None and (followed is None or followed.group.role is not Role.LEADER):
            host.apply(group.leader_suspected(now))

    def is_settled(self) -> bool:
        leader = self.cluster.leader()
        if leader is None or not leader.group.is_established or self.cluster.links:
            return False
        group = leader.group
        if sorted(group.configuration.voters) != sorted(self.target) or group.configuration.learners:
            return False
        ends = {(host.group.end_index, host.group.commit_end) for host in self.members(leader)}
        return ends == {(group.end_index, group.end_index)}

    def members(self, leader: Host) -> list[Host]:
        hosts = [self.cluster.host_of(one) for one in leader.group.configuration.members]
        return [host for host in hosts if host is not None]


@pytest.mark.parametrize("block", range(10))
def test_properties_hold_under_faults_and_progress_returns(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        driver = Driver(seed)
        try:
            driver.run()
            driver.heal()
            leader = driver.cluster.leader()
            assert leader is not None
            committed = len(driver.cluster.committed)
            leader.append([2])
            leader.begin_flush()
            leader.finish_flush()
            driver.heal()
            assert len(driver.cluster.committed) >= committed + 2
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {driver.cluster.now:.3f} s: {error}") from error


# -------------------------------------------------------------------- mutations: one rule less each


def _durable_is_what_is_verified(_: object) -> Callable[..., object]:
    """Rule taken away: a follower acknowledges what is durable (replication.md section 6)."""

    def acknowledge(self: Follower, out: Output) -> None:
        assert self.leader is not None
        self.acknowledged_end = self.verified_end
        reply = AppendReply(self._state.term, self.verified_end, self._state.watermarks.log_start)
        self._state.answer_leader(out, self.leader, reply)

    return acknowledge


def _counts_unflushed_self(advance_commit: Callable[..., None]) -> Callable[..., object]:
    """Rule taken away: the leader counts itself only when flushed."""

    def advance(self: Leader, out: Output, now: float) -> None:
        state = self._state
        state.persisted_end, persisted_end = state.end_index, state.persisted_end
        advance_commit(self, out, now)
        state.persisted_end = persisted_end

    return advance


def _commits_older_terms(_: object) -> Callable[..., object]:
    """Rule taken away: only entries of the own term are committed by counting (Raft figure 8)."""
    return lambda self, commit_end: True


def _votes_for_shorter_logs(_: object) -> Callable[..., object]:
    """Rule taken away: a candidate's log must be at least as complete as the voter's (Raft section 5.4.1)."""
    return lambda state, request: True


def _two_changes_at_once(propose: Callable[..., None]) -> Callable[..., object]:
    """Rules taken away: a membership change waits for the one before, and for the own term's first row."""

    def propose_configuration(self: Leader, out: Output, configuration: Configuration, now: float) -> None:
        self._state.is_change_uncommitted = False
        own, self.own_row_index = self.own_row_index, -1
        try:
            propose(self, out, configuration, now)
        finally:
            self.own_row_index = own

    return propose_configuration


@pytest.mark.parametrize(
    ("owner", "name", "mutated"),
    [
        (Follower, "_acknowledge", _durable_is_what_is_verified),
        (Leader, "advance_commit", _counts_unflushed_self),
        (Leader, "_may_commit", _commits_older_terms),
        (election, "_is_up_to_date", _votes_for_shorter_logs),
        (Leader, "propose_configuration", _two_changes_at_once),
    ],
)
def test_a_rule_less_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    mutated: Callable[[Callable[..., object]], Callable[..., object]],
) -> None:
    monkeypatch.setattr(owner, name, mutated(getattr(owner, name)))
    assert finds_violation()


def test_votes_that_leave_before_they_are_durable_are_found() -> None:
    assert finds_violation(early_votes=True)


def finds_violation(**options: object) -> bool:
    for seed in range(3000):
        try:
            Driver(seed, refuses=False, **options).run()
        except AssertionError:
            return True
    return False
