"""What nodes believe of each other (broker/security/README, broker/replication/README)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations

from broker.security import handshake, proofs
from broker.security.cluster_secret import ClusterSecret
from broker.security.handshake import Dialler
from broker.security.proofs import Authenticator
from protocol import peer
from protocol.peer_frames import FrameCheck
from raft import plausibility
from raft.types import MAX_TERM
from tests.simulator.cluster import PEER_PORT, SECRET, SimulatedCluster, host_of
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import ELECTION_TIMEOUT_S, Stage
from tests.simulator.mutations.switch import off
from tests.simulator.peer_speaker import PeerSpeaker

# -- every frame is the one that was sent next ---------------------------------------------------------------


def _unchecked(_: object) -> object:
    """As if there were no checksum at the end of a frame."""

    def open_frame(self: FrameCheck, frame: memoryview) -> memoryview:
        return frame[:-4]

    return open_frame


@contextmanager
def all_links_corrupt(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """A small share of the chunks, on every link between nodes, until everything is healed."""
    del rng
    for one, other in permutations(cluster.node_ids, 2):
        cluster.network.corrupt(host_of(one), host_of(other), 0.1)
    yield


# -- nobody is let in who does not know the secret -----------------------------------------------------------


def _connect(stage: Stage, as_node: int, to: int, secret: ClusterSecret) -> PeerSpeaker:
    """Somebody dials a node and introduces itself as another one; the end of that, whatever it is."""
    authenticator = Authenticator(secret, random.Random(stage.rng.getrandbits(64)).randbytes)
    dialler = Dialler(authenticator, as_node, to, f"{host_of(to)}:{PEER_PORT}")
    speaker = PeerSpeaker(dialler, stage.cluster.nodes[as_node].cluster.hello())
    network = stage.cluster.network.of("somebody")
    task = stage.loop.create_task(network.connect(host_of(to), PEER_PORT, lambda: speaker))
    stage.wait(lambda: task.done() and (speaker.is_introduced or speaker.is_lost))
    return speaker


def a_stranger_introduces_itself(stage: Stage) -> None:
    """It has learnt who the nodes are, and does not know their secret."""
    as_node, to = stage.rng.sample(stage.cluster.node_ids, 2)
    stranger = _connect(stage, as_node, to, ClusterSecret(b"the secret of somebody else"))
    assert not stranger.is_introduced, "a stranger was let in"


# -- terms that cannot be ------------------------------------------------------------------------------------


def a_voter_names_the_highest_term(stage: Stage) -> None:
    """Behind the highest term there is no other: whoever believes it leads never again, and takes the others along."""
    stage.create_topic()
    stage.write()
    leader = stage.leader()
    voter = stage.followers()[0]
    group = stage.replica(leader).group
    speaker = _connect(stage, voter, leader, SECRET)
    speaker.send(
        peer.VoteReply(
            topic_id=stage.replica(leader).key.topic_id, partition=0, incarnation=group.self_id.incarnation,
            term=MAX_TERM, granted=False, pre_vote=False, log_start=0, mtro=0, mxro=0,
        )
    )  # fmt: skip
    stage.run_for(ELECTION_TIMEOUT_S)
    assert stage.waited(lambda: stage.leader_now() is not None, 10 * ELECTION_TIMEOUT_S), (
        "nobody leads any more"
    )
    stage.write()


MUTATIONS = (
    Mutation(
        "frames-are-checked",
        "A frame between nodes that is not the one that was sent next ends its connection (protocol/README)",
        off((FrameCheck, "open", _unchecked)),
        conditions=all_links_corrupt,
    ),
    Mutation(
        "nodes-prove-themselves",
        "Nobody introduces itself who has not proved that it knows the secret (security/README)",
        off(
            (proofs, "is_proof", lambda _: lambda *said: True),
            (handshake, "is_proof", lambda _: lambda *said: True),
            (handshake, "checksum_start", lambda _: lambda *said: 0),
        ),
        story=a_stranger_introduces_itself,
        note="said in two places: the checksums of frames start with a value that takes the secret, too",
    ),
    Mutation(
        "terms-are-plausible",
        "A term that cannot have been reached since is not believed (raft/plausibility.py)",
        off((plausibility, "term_refusal", lambda _: lambda state, term: None)),
        story=a_voter_names_the_highest_term,
        note="a property: availability",
    ),
)
