"""Who leads, and who may still say so (replication.md section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.replication.heartbeat import Heartbeat
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from protocol.errors import ErrorCode
from raft import election
from raft.liveness import NodeLiveness
from raft.liveness_types import BootId, LivenessOutput, Ping
from raft.state import GroupState
from raft.types import Output
from storage.log_types import GroupKey
from tests.simulator.cluster import host_of
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import ELECTION_TIMEOUT_S, LATEST, Stage
from tests.simulator.mutations.switch import off

# -- PreVote -------------------------------------------------------------------------------------------------


def _campaign_at_once(_: object) -> object:
    def campaign(state: GroupState, out: Output, now: float) -> None:
        if state.may_campaign and state.are_rows_durable:
            election.campaign(state, out, now, transfer=False)
        else:
            state.deadline = now + state.timing.election_timeout_s if state.may_campaign else None

    return campaign


def a_follower_comes_back(stage: Stage) -> None:
    """Cut off for some election timeouts; then the same leader still leads, in the same term."""
    stage.create_topic()
    stage.write()
    leader, away = stage.leader(), stage.followers()[0]
    term = stage.replica(leader).group.term
    stage.isolate(away)
    stage.run_for(stage.rng.uniform(2, 6) * ELECTION_TIMEOUT_S)
    stage.write()
    stage.heal()
    stage.run_for(3 * ELECTION_TIMEOUT_S)
    found = {stage.replica(node_id).group.term for node_id in (leader, away)}
    assert found == {term}, f"a rejoining node raised the term from {term} to {found}"
    assert stage.replica(leader).is_leader, "a rejoining node deposed the leader"


# -- CheckQuorum ---------------------------------------------------------------------------------------------


def an_isolated_leader_is_asked(stage: Stage) -> None:
    """Two election timeouts after it was cut off from its peers, it answers nobody as a leader."""
    stage.create_topic()
    stage.write()
    leader = stage.leader()
    stage.isolate(leader)
    stage.run_for(2 * ELECTION_TIMEOUT_S + stage.rng.uniform(0, 1))
    _refuses(stage, leader)


def _refuses(stage: Stage, node_id: int) -> None:
    part = stage.fetch(node_id)
    assert part.error is not ErrorCode.NONE, "a leader that nobody hears answers a Fetch"
    error, _ = stage.offset_of(node_id, LATEST)
    assert error is not ErrorCode.NONE, "a leader that nobody hears answers a ListOffsets"


# -- only an echo of my number counts ------------------------------------------------------------------------


def _any_ping_counts(received: Callable[..., LivenessOutput]) -> object:
    """Whoever is heard is taken to hear."""

    def heard(self: NodeLiveness, node: int, ping: Ping, now: float) -> LivenessOutput:
        out = received(self, node, ping, now)
        peer = self._peer(node)
        if peer.last_number == ping.number:
            peer.confirmed_number, peer.confirmed_at = self._number, now
            peer.confirmed_version = self._led.version
            peer.echo_is_fresh = True
        return out

    return heard


def a_leader_that_is_not_heard_is_asked(stage: Stage) -> None:
    """It hears everybody, and nobody hears it; the others do not hear each other, so that no new leader contradicts it.
    After two election timeouts it answers nobody."""
    stage.create_topic()
    stage.write()
    leader = stage.leader()
    one, other = stage.followers()
    for node_id in (one, other):
        stage.cut(leader, node_id)
    stage.cut(one, other)
    stage.cut(other, one)
    stage.run_for(2 * ELECTION_TIMEOUT_S + stage.rng.uniform(0, 1))
    _refuses(stage, leader)


def old_pings_arrive_while_a_read_waits(stage: Stage) -> None:
    """A hears nobody, and nobody hears it; what one of the others said before they elected another leader comes late,
    while a client waits for the latest offset at A."""
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    old = stage.leader()
    late, other = stage.followers()
    bring = stage.cluster.network.stall(host_of(late), host_of(old))
    for source, target in ((old, late), (old, other), (other, old)):
        stage.cut(source, target)
    if not stage.waited(lambda: stage.leader_now() not in (None, old), 1.4 * ELECTION_TIMEOUT_S):
        return
    acknowledged = stage.write()
    question = stage.begin(stage.asking_for(old, LATEST))
    stage.run_for(0.02)
    bring()
    stage.wait(question.done)
    error, latest = question.result()
    assert error is not ErrorCode.NONE or latest > acknowledged, (
        f"latest is {latest}, and {acknowledged} was acknowledged before it was asked for"
    )


# -- a new life, or a closed connection, ends leaderships -----------------------------------------------------


def _any_link(connected: Callable[..., LivenessOutput]) -> object:
    """Whoever pings again in time was never away."""

    def new_link(self: NodeLiveness, node: int, boot_id: BootId, now: float) -> LivenessOutput:
        _adopt(self, node, boot_id)
        return connected(self, node, boot_id, now)

    return new_link


def _any_life(ping_received: Callable[..., LivenessOutput]) -> object:
    def new_ping(self: NodeLiveness, node: int, ping: Ping, now: float) -> LivenessOutput:
        _adopt(self, node, ping.boot_id)
        return ping_received(self, node, ping, now)

    return new_ping


def _not_connected(_: object) -> object:
    def lost_link(self: NodeLiveness, node: int, now: float) -> LivenessOutput:
        self._peer(node).is_connected = False
        return LivenessOutput()

    return lost_link


def _adopt(liveness: NodeLiveness, node: int, boot_id: BootId) -> None:
    peer = liveness._peer(node)
    if peer.boot_id not in (None, boot_id) and boot_id not in peer.former_lives:
        peer.new_life(boot_id)


def a_leader_is_killed_and_back_at_once(stage: Stage) -> None:
    """Its machine restarts without a FIN, and what it had not flushed is gone, so the others know more: they have to
    elect one of them within two election timeouts."""
    stage.create_topic()
    leader = stage.leader()
    stage.cluster.disks[leader].faults.slow_factor = 200.0
    for _ in range(5):
        stage.write()
    stage.cluster.cut_power(leader)
    stage.cluster.disks[leader].faults.slow_factor = 1.0
    stage.run_for(stage.rng.uniform(0.1, 0.6))
    stage.cluster.start(leader)
    assert stage.waited(lambda: stage.leader_now() is not None, 2 * ELECTION_TIMEOUT_S), "nobody leads"


# -- ReadIndex -----------------------------------------------------------------------------------------------


def _without_a_round(_: object) -> object:
    def at_once(self: Reads, replicas: Sequence[Replica], answer: Callable[[set[GroupKey]], None]) -> None:
        answer({replica.key for replica in replicas if replica.is_serving})

    return at_once


def a_deposed_leader_is_asked_for_the_end(stage: Stage) -> None:
    """A client that was told of a write at one leader asks the one before for the latest offset."""
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    old = stage.leader()
    stage.isolate(old)
    stage.wait(lambda: stage.leader_now() not in (None, old))
    acknowledged = stage.write()
    error, latest = stage.offset_of(old, LATEST)
    assert error is not ErrorCode.NONE or latest > acknowledged, (
        f"latest is {latest}, and {acknowledged} was acknowledged before it was asked for"
    )


# -- a stalled loop ------------------------------------------------------------------------------------------


def a_leader_sleeps_and_is_asked(stage: Stage) -> None:
    """The question lies in its socket when it wakes up, before what the others have sent; another one leads by then."""
    stage.create_topic()
    stage.write()
    old = stage.leader()
    assert stage.fetch(old).error is ErrorCode.NONE
    wake_up = stage.cluster.pause(old)
    stage.run_for(stage.rng.uniform(0, 0.05))
    question = stage.begin(stage.fetching(old))
    stage.run_for(stage.rng.uniform(1.2, 1.8) * ELECTION_TIMEOUT_S)
    wake_up()
    stage.wait(question.done)
    assert question.result().error is not ErrorCode.NONE, (
        "a leader that slept through an election answers a Fetch"
    )


MUTATIONS = (
    Mutation(
        "pre-vote",
        "PreVote: a rejoining node raises no term and deposes nobody (section 5)",
        off((election, "start_pre_vote", _campaign_at_once)),
        story=a_follower_comes_back,
        note="a property, not safety: no invariant can know it",
    ),
    Mutation(
        "check-quorum",
        "CheckQuorum: an isolated leader answers nothing after two election timeouts (section 5)",
        off((Heartbeat, "_check_quorum", lambda _: lambda self, replica, now: None)),
        story=an_isolated_leader_is_asked,
        note="a property; that what it answers is not lost is Raft's doing",
    ),
    Mutation(
        "numbered-liveness",
        "Only an echo of my number counts: a one-way link must not feed CheckQuorum (section 5)",
        off((NodeLiveness, "ping_received", _any_ping_counts)),
        story=a_leader_that_is_not_heard_is_asked,
        note="a property; a new leader would depose the old one by its challenge",
    ),
    Mutation(
        "numbered-reads",
        "A read waits for echoes of pings that were sent after it came (sections 5 and 6; Raft thesis, 6.4)",
        off((NodeLiveness, "ping_received", _any_ping_counts)),
        story=old_pings_arrive_while_a_read_waits,
    ),
    Mutation(
        "boot-id",
        "A new boot id, or a closed connection, ends all leaderships of that node at once (section 5)",
        off(
            (NodeLiveness, "connected", _any_link),
            (NodeLiveness, "ping_received", _any_life),
            (NodeLiveness, "disconnected", _not_connected),
        ),
        story=a_leader_is_killed_and_back_at_once,
        note="a property: the time of fail-over",
    ),
    Mutation(
        "read-index",
        "ListOffsets latest waits for a liveness round begun after it arrived (section 6)",
        off((Reads, "confirm", _without_a_round)),
        story=a_deposed_leader_is_asked_for_the_end,
    ),
    Mutation(
        "stalled-loop",
        "A loop that wakes after a gap longer than the election timeout steps down before it serves (section 5)",
        off((NodeLiveness, "is_stalled", lambda _: lambda self, now: False)),
        story=a_leader_sleeps_and_is_asked,
        note="a property; Fetch waits for no round, so a sleeper would answer with an old high watermark",
    ),
)
