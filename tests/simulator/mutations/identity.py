"""Who somebody is, and of which group (replication.md sections 3 and 4)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker import node
from broker.config.node_config import NodeConfig
from broker.membership import identity
from broker.membership.identity import Identity
from broker.partitions import publisher
from broker.replication.log_opener import LogOpener
from broker.replication.messages import GroupMessages
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from raft.types import FOUNDING_TERM
from storage.directory import MetaProperties, list_partitions
from storage.disk import Disk
from storage.journal import JOURNAL_NAME, Journal
from storage.journal_records import Quarantine, Vote
from storage.log_types import GroupKey
from storage.partition_folder import METADATA_NAME, read_topic_id, write_topic_id
from storage.segment_files import segment_path
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import CARELESS, ELECTION_TIMEOUT_S, Stage
from tests.simulator.mutations.switch import off

# -- an empty disk is another voter --------------------------------------------------------------------------


def _named_after_the_node(open_identity: Callable[..., Identity]) -> object:
    def always_the_same(disk: Disk, config: NodeConfig, rng: random.Random) -> Identity:
        return open_identity(disk, config, random.Random(config.node_id))

    return always_the_same


def an_empty_voter_is_asked_by_the_one_that_lags(stage: Stage) -> None:
    """e is acknowledged on A and B while C lags; B's disk is wiped, A pauses: C must not lead without e."""
    stage.create_topic()
    stage.write()
    a = stage.leader()
    b, c = stage.followers()
    stage.cluster.kill(c)
    for _ in range(stage.rng.randint(1, 5)):
        stage.write()
    stage.cluster.kill(b)
    stage.cluster.wipe(b)
    wake_up = stage.cluster.pause(a)
    for node_id in stage.rng.sample((b, c), 2):
        stage.cluster.start(node_id)
    stage.run_for(stage.rng.uniform(3, 6) * ELECTION_TIMEOUT_S)
    wake_up()
    stage.write()


# -- a log that was discarded is another voter's --------------------------------------------------------------


def a_corrupt_voter_is_asked_while_it_is_rebuilt(stage: Stage) -> None:
    """e is acknowledged on A and B while C lags; B's log is corrupted and discarded. A leads again with the vote of C,
    and stalls when it has sent B no more than who the members are. B must not help C to lead."""
    stage.create_topic()
    stage.write()
    a = stage.leader()
    b, c = stage.followers()
    stage.cluster.kill(c)
    for _ in range(stage.rng.randint(3, 6)):
        stage.write()
    stage.run_for(0.5)  # until the flushed ends are recorded: below them a bad batch is corruption
    end_index = stage.replica(b).group.end_index
    log = stage.replica(b).log
    path = segment_path(log.directory, log.first_stored_offset)
    stage.cluster.oracle.nodes.damaged(b, stage.replica(b).key)
    stage.cluster.kill(b)
    stage.cluster.kill(a)
    stage.cluster.disks[b].open(path).write_at(stage.rng.randrange(61, 70), b"\xff\x00\xff")
    stage.cluster.start(a, b, c)
    stage.waited(lambda: stage.leads(a), 10 * ELECTION_TIMEOUT_S)
    stage.cut(a, c)
    stage.waited(lambda: 0 < _end_index(stage, b) < end_index, 2 * ELECTION_TIMEOUT_S)
    wake_up = stage.cluster.pause(a)
    stage.heal()
    stage.run_for(stage.rng.uniform(3, 5) * ELECTION_TIMEOUT_S)
    wake_up()
    stage.write()


def _end_index(stage: Stage, node_id: int) -> int:
    replica = stage.cluster.replica(node_id, stage.topic)
    return -1 if replica is None else replica.group.end_index


# -- lost votes are a lost identity --------------------------------------------------------------------------


def _term_0(_: object) -> object:
    """Every log without a vote is of one that never voted."""

    def keep_identity(disk: Disk, meta: MetaProperties, rng: random.Random, reason: str) -> Identity:
        path = f"{disk.root}/{JOURNAL_NAME}"
        if disk.exists(path):
            disk.unlink(path)
        journal = Journal.open(disk)
        for folder in list_partitions(disk):
            if folder.topic_id is not None:
                journal.append(Vote(GroupKey(folder.topic_id, folder.partition), FOUNDING_TERM, None))
        journal.flush()
        return Identity(meta.directory_id, meta.cluster_id, False, journal)

    return keep_identity


def a_voter_forgets_whom_it_elected(stage: Stage) -> None:
    """B elects A; before it hears of A again it loses its journal, and then hears only from the leader before A."""
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    old = stage.leader()
    followers = stage.followers()
    stage.isolate(old)
    stage.wait(lambda: any(stage.replica(node_id).is_leader for node_id in followers))
    a, b = sorted(followers, key=lambda node_id: not stage.replica(node_id).is_leader)
    stage.cluster.kill(b)
    disk = stage.cluster.disks[b]
    disk.unlink(f"{disk.root}/{JOURNAL_NAME}")
    disk.flush_directory(disk.root)
    stage.cluster.oracle.nodes.disk_lost(b)
    stage.heal()
    stage.isolate(a)
    stage.run_for(stage.rng.uniform(0, 2.5) * ELECTION_TIMEOUT_S)
    stage.cluster.start(b)
    stage.run_for(stage.rng.uniform(3, 5) * ELECTION_TIMEOUT_S)
    if stage.leader_now() is not None:
        stage.append(stage.leader(), producer_id=CARELESS)
        stage.run_for(0.2)
    stage.heal()
    stage.write()


# -- topic id in messages ------------------------------------------------------------------------------------


def _names_of_topics() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    names: dict[UUID, str] = {}

    def remember(open_replica: Callable[..., Replica | None]) -> object:
        def opening(
            self: Replicas, key: GroupKey, topic: str, *rest: object, **more: object
        ) -> Replica | None:
            names[key.topic_id] = topic
            return open_replica(self, key, topic, *rest, **more)

        return opening

    def by_name(find: Callable[..., Replica | None]) -> object:
        def finding(self: GroupMessages, topic_id: UUID, partition: int) -> Replica | None:
            named = self._replicas.by_name.get((names.get(topic_id, ""), partition))
            return named or find(self, topic_id, partition)

        return finding

    return remember, by_name


_remember, _by_name = _names_of_topics()


def a_topic_is_made_anew_while_a_follower_is_away(stage: Stage) -> None:
    """C is cut off, and its old log with it. Then it reaches A, which leads the new topic of that name, before
    anybody tells it of that. What A is told of the old log must not count for the new one."""
    controller = stage.cluster.nodes[1].leaders.controller_id()
    a, c = [node_id for node_id in stage.cluster.node_ids if node_id != controller][:2]
    replicas = (a, controller, c)
    stage.create_topic(replicas=replicas)
    for _ in range(stage.rng.randint(6, 10)):
        stage.write()
    stage.everybody_has_all()
    stage.isolate(c)
    stage.delete_topic()
    stage.create_topic(replicas=replicas)
    for _ in range(stage.rng.randint(11, 15)):
        stage.write()
    if stage.leader() != a:
        return
    stage.isolate(a)
    stage.join(a, c)
    stage.run_for(stage.rng.uniform(0.1, 0.3))
    if stage.replica(a).is_leader:
        stage.append(a, producer_id=CARELESS)
    stage.run_for(0.3)
    stage.cluster.kill(a)
    stage.heal()
    stage.ready(controller, c)
    stage.write()
    stage.write()
    stage.cluster.start(a)


# -- a log of another id is not opened -----------------------------------------------------------------------


def _adopt(_: object) -> object:
    """The folder has the right name, and so has what the journal knows of it."""

    def make_way(self: LogOpener, key: GroupKey, topic: str, directory: str) -> None:
        if not self._disk.exists(f"{directory}/{METADATA_NAME}"):
            return
        found = read_topic_id(self._disk, directory)
        if found != key.topic_id:
            state = self._journal.state(GroupKey(found, key.partition))
            term = FOUNDING_TERM if state is None else state.term
            self._journal.append(Vote(key, term, None if state is None else state.voted_for))
            self._journal.flush()
            write_topic_id(self._disk, directory, key.topic_id)
            self._disk.flush_directory(directory)

    return make_way


def a_topic_is_made_anew_while_a_node_is_down(stage: Stage) -> None:
    """Its old log is longer. It must not become the new topic's."""
    stage.create_topic()
    for _ in range(stage.rng.randint(6, 10)):
        stage.write()
    stage.everybody_has_all()
    c = stage.followers()[0]
    stage.cluster.kill(c)
    stage.delete_topic()
    stage.create_topic()
    for _ in range(stage.rng.randint(1, 3)):
        stage.write()
    stage.start(c)
    stage.write()


# -- a log that is begun anew ------------------------------------------------------------------------------


def _without_quarantine(become_another: Callable[..., None]) -> object:
    def become(self: LogOpener, key: GroupKey) -> None:
        become_another(self, key)
        self._journal.append(Quarantine(key, False))
        self._journal.flush()

    return become


def a_process_dies_while_it_makes_a_log_anew(stage: Stage) -> None:
    """The folder of a replica is gone. The next process finds what the first one has made of a new one."""
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    cluster, node_id = stage.cluster, stage.followers()[0]
    replica, disk = stage.replica(node_id), cluster.disks[node_id]
    cluster.kill(node_id)
    cluster.damage.note(node_id, replica.key, is_lost=True)
    disk.vanish(replica.log.directory)
    disk.die_after(stage.rng.randrange(15, 25), lambda: cluster.kill(node_id))
    cluster.start(node_id)
    if stage.waited(lambda: not cluster.is_alive(node_id), 1.0):
        stage.start(node_id)
    stage.write()
    stage.everybody_has_all()


MUTATIONS = (
    Mutation(
        "wiped-voter",
        "A voter is node, directory and incarnation: with an empty disk it is somebody else (section 3)",
        off((node, "open_identity", _named_after_the_node)),
        story=an_empty_voter_is_asked_by_the_one_that_lags,
    ),
    Mutation(
        "raised-incarnation",
        "The incarnation is raised durably before a log is discarded: its successor is another voter (section 3)",
        off((LogOpener, "_become_another", lambda _: lambda self, key: None)),
        story=a_corrupt_voter_is_asked_while_it_is_rebuilt,
    ),
    Mutation(
        "begun-anew-in-quarantine",
        "A log that is begun anew is not opened before its names are durable (broker/replication)",
        off((LogOpener, "_become_another", _without_quarantine)),
        story=a_process_dies_while_it_makes_a_log_anew,
        bound=120,
    ),
    Mutation(
        "lost-votes",
        "A missing or unreadable vote is a lost identity, never one that has not voted (section 3)",
        off((identity, "_lose_identity", _term_0)),
        story=a_voter_forgets_whom_it_elected,
    ),
    Mutation(
        "topic-id-in-messages",
        "Every message between replicas names its group by topic id (section 4)",
        off((Replicas, "open", _remember), (GroupMessages, "_find", _by_name)),
        story=a_topic_is_made_anew_while_a_follower_is_away,
    ),
    Mutation(
        "topic-id-on-disk",
        "A log whose partition.metadata names another topic id is never opened (section 4)",
        off((publisher, "list_partitions", lambda _: lambda disk: []), (LogOpener, "_make_way", _adopt)),
        story=a_topic_is_made_anew_while_a_node_is_down,
        note="said in three places: the start sets it aside, opening does, and the journal has no vote for it",
    ),
)
