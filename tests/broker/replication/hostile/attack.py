"""A node that lies to another one, in states in which that can hurt, and what has to hold afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from broker.network.peers import PeerIdentity
from broker.security.handshake import Dialler
from broker.security.proofs import Authenticator
from protocol.controller.topics import CreateTopics, NewTopic
from protocol.errors import ErrorCode
from protocol.peer import Hello, PeerMessage
from tests.broker.replication.hostile.lies import KINDS, Liar
from tests.broker.world import SECRET, World, running
from tests.simulator.peer_speaker import PeerSpeaker

TOPIC = "t"
TARGET = 1
RECORDS = [b"record %d" % number for number in range(6)]

#: (position of the kind, seed of the values).
Lie = tuple[int, int]


class Attack:
    """Lies to node TARGET in the name of another one. Whoever is found out is let in again, as nodes are."""

    def __init__(self, world: World, *, may_decide: bool) -> None:
        self.world = world
        self._may_decide = may_decide
        self._speakers: dict[int, PeerSpeaker] = {}
        #: Introductions, from when the node was seen last.
        self._hellos: dict[int, Hello] = {}
        #: How many were made: each is closed at the first lie that is found out, be it a moment later.
        self.connections = 0

    def run(self, lies: Sequence[Lie]) -> None:
        for position, seed in lies:
            rng = random.Random(seed)
            self._tell(
                rng.choice([x for x in self.world.ids if x != TARGET]), KINDS[position % len(KINDS)], rng
            )

    def _tell(self, sender: int, kind: type[PeerMessage], rng: random.Random) -> None:
        world = self.world
        if sender in world.nodes and hasattr(world.nodes[sender], "cluster"):
            self._hellos[sender] = world.nodes[sender].cluster.hello()
        hello = self._hellos.get(sender)
        speaker = None if hello is None else self._connected(sender, hello)
        if speaker is None or hello is None:
            return
        liar = Liar(world, TARGET, PeerIdentity.of(hello), rng)
        speaker.send(liar.message(kind, may_decide=self._may_decide))
        world.loop.run_for(rng.choice((0.001, 0.001, 0.05)))
        assert all(process.alive for process in world.processes.values())

    def _connected(self, sender: int, hello: Hello) -> PeerSpeaker | None:
        """None: nobody listens there yet, or the node refuses this one (it has another directory by now)."""
        world, speaker = self.world, self._speakers.get(sender)
        if speaker is not None and not speaker.is_lost:
            return speaker
        authenticator = Authenticator(SECRET, random.Random(sender).randbytes)
        self.connections += 1
        speaker = PeerSpeaker(Dialler(authenticator, sender, TARGET, f"n{TARGET}:9093"), hello)
        network = world.network.of("liar")
        task = world.loop.create_task(network.connect(f"n{TARGET}", 9093, lambda: speaker))
        world.wait(task.done)
        if task.exception() is not None:
            return None
        world.wait(lambda: speaker.is_introduced or speaker.is_lost)
        self._speakers[sender] = speaker
        return None if speaker.is_lost else speaker

    def survived(self) -> None:
        """Every node lives, and after a loss of power all start again, serve, and have what was acknowledged."""
        world = self.world
        world.network.heal_all()
        world.loop.run_for(0.1)
        for node_id in list(world.nodes):
            world.kill(node_id, power=True)
        for node_id in world.ids:
            world.start(node_id)
        if self._may_decide:
            # Who was told of another cluster is out of the others' reach. That the topic was created may be among what
            # was cut off.
            world.wait(lambda: len(self._ready()) >= 2)
            assert not any(task.done() and task.exception() for task in world.starts.values())
            topic = NewTopic(name="afterwards", num_partitions=1, replication_factor=2)
            answer = world.ask(self._ready()[0], CreateTopics(topics=[topic]))
            assert answer.topics[0].error_code == ErrorCode.NONE, answer
            world.produce("afterwards", b"afterwards")
            return
        world.wait_ready()
        leader = world.leader(TOPIC)
        content = world.content(leader, TOPIC)
        positions = [content.find(record) for record in RECORDS]
        assert -1 not in positions and positions == sorted(positions), "an acknowledged record is gone"
        assert world.replica(leader, TOPIC).log.start_offset == 0
        world.produce(TOPIC, b"afterwards")
        world.wait_equal(TOPIC)

    def _ready(self) -> list[int]:
        return [node_id for node_id, node in self.world.nodes.items() if node.ready.is_set()]


# ---------------------------------------------------------------------- states of the target


def lead(world: World, node_id: int) -> None:
    """Have this node lead the topic."""
    while (now := world.leader(TOPIC)) != node_id:
        to = world.replica(node_id, TOPIC).group.self_id
        world.processes[now].call(world.replica(now, TOPIC).driver.transfer_leadership, to)
        world.loop.run_for(0.1)


def leader(world: World) -> None:
    lead(world, TARGET)


def follower(world: World) -> None:
    lead(world, 2)


def candidate(world: World) -> None:
    """It hears nobody, and asks for votes again and again."""
    lead(world, TARGET)
    world.network.partition(["n1"], ["n2", "n3"])
    replica = world.replica(TARGET, TOPIC)
    world.wait(lambda: replica.group.leader is None)


def starting(world: World) -> None:
    """It has just been started again, and its partitions are not open yet."""
    lead(world, 2)
    world.kill(TARGET, power=True)
    world.start(TARGET)
    world.wait(lambda: ("n1", 9093) in world.network._listeners)


def rebuilding(world: World) -> None:
    """It has lost its disk: its replicas are blank, become learners, and then voters again."""
    lead(world, 2)
    world.kill(TARGET)
    world.wipe(TARGET)
    world.start(TARGET)
    world.wait(lambda: ("n1", 9093) in world.network._listeners)


def empty_node(world: World) -> None:
    """It is alone and belongs to no cluster: what a formation says counts."""
    for node_id in world.ids:
        world.kill(node_id)
    world.wipe(TARGET)
    world.start(TARGET)
    world.wait(lambda: ("n1", 9093) in world.network._listeners)


STATES: dict[str, Callable[[World], None]] = {
    "leader": leader,
    "follower": follower,
    "candidate": candidate,
    "starting": starting,
    "rebuilding": rebuilding,
    "empty": empty_node,
}


@contextmanager
def attacked(state: str, *, may_decide: bool = False) -> Iterator[Attack]:
    """A cluster whose replicas all know that the records are committed, and in which the target is in this state.
    Another topic was there and is deleted."""
    with running() as world:
        world.create_topic(TOPIC)
        world.create_topic("gone")
        for record in RECORDS:
            world.produce(TOPIC, record)
        world.wait_equal(TOPIC)
        world.delete_topic("gone")
        attack = Attack(world, may_decide=may_decide)
        attack._hellos = {node_id: node.cluster.hello() for node_id, node in world.nodes.items()}
        STATES[state](world)
        yield attack
