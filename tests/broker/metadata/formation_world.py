"""Nodes that form a cluster over connections that delay, break one-sidedly and outlive their dialler.

A connection is two first-in-first-out queues. A process that dies leaves its sent messages in them, and its peers learn
of its death only when the End behind those messages is delivered: as after a power loss.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from broker.metadata.formation import (
    ClusterFormation,
    Formation,
    FormationState,
    Order,
    Persist,
    Reconnect,
    Refuse,
    SendForm,
)
from broker.metadata.ids import random_uuid


class Hello(NamedTuple):
    directory_id: UUID
    cluster_id: str | None


class HelloReply(NamedTuple):
    directory_id: UUID
    cluster_id: str | None
    refusal: Refuse | None


class Form(NamedTuple):
    formation: Formation


class End(NamedTuple):
    pass


Frame = Hello | HelloReply | Form | End


@dataclass
class Disk:
    directory_id: UUID
    cluster_id: str | None = None
    row_0: Formation | None = None


class Process:
    def __init__(self, node_id: int, disk: Disk, world: World) -> None:
        self.node_id = node_id
        self.disk = disk
        self.world = world
        self.alive = True
        self.persisting: Persist | None = None
        self.refusals: list[Refuse] = []
        self.formation = ClusterFormation(
            node_id,
            disk.directory_id,
            world.voters,
            world.rng,
            configured_cluster_id=world.configured_cluster_id,
            cluster_id=disk.cluster_id,
            held=disk.row_0,
        )
        self.carry_out(self.formation.start())

    def carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Persist():
                    assert self.persisting is None
                    self.persisting = order
                    if order.formation not in self.world.made:
                        self.world.formation_made(self, order.formation)
                case SendForm():
                    link = self.world.dialled(self, order.node_id)
                    if link is not None and link.is_answered:
                        link.to_accepter.append(Form(order.formation))
                case Reconnect():
                    link = self.world.dialled(self, order.node_id)
                    assert link is not None
                    link.close_at_dialler()
                case Refuse():
                    self.refusals.append(order)

    def write_to_disk(self) -> None:
        assert self.persisting is not None
        self.disk.cluster_id = self.persisting.formation.cluster_id
        if self.persisting.founding:
            self.disk.row_0 = self.persisting.formation

    def persist(self) -> None:
        self.write_to_disk()
        self.persisting = None
        self.carry_out(self.formation.persisted())


@dataclass(eq=False)
class Connection:
    dialler: Process
    accepter: Process
    to_accepter: deque[Frame] = field(default_factory=deque)
    to_dialler: deque[Frame] = field(default_factory=deque)
    dialler_open: bool = True
    accepter_open: bool = True
    is_answered: bool = False
    introduced_as: UUID | None = None

    def ends(self) -> list[Callable[[], None]]:
        """What closes it at each end that is still open."""
        closes = [self.close_at_dialler] if self.dialler_open else []
        return closes + ([self.close_at_accepter] if self.accepter_open else [])

    def close_at_dialler(self) -> None:
        self.dialler_open = False
        self.to_accepter.append(End())
        if self.dialler.alive:
            self.dialler.formation.closed(self.accepter.node_id)

    def close_at_accepter(self) -> None:
        self.accepter_open = False
        self.to_dialler.append(End())

    def deliver_to_accepter(self) -> None:
        frame = self.to_accepter.popleft()
        process = self.accepter
        if not process.alive or not self.accepter_open:
            return
        match frame:
            case Hello():
                refusal = process.formation.introduced(
                    self.dialler.node_id, frame.directory_id, frame.cluster_id
                )
                reply = HelloReply(process.disk.directory_id, process.formation.cluster_id, refusal)
                self.to_dialler.append(reply)
                self.introduced_as = frame.directory_id
                if refusal is not None:
                    self.close_at_accepter()
            case Form():
                assert self.introduced_as is not None
                sender = self.dialler.node_id
                process.carry_out(
                    process.formation.form_received(sender, self.introduced_as, frame.formation)
                )
            case End():
                self.close_at_accepter()

    def deliver_to_dialler(self) -> None:
        frame = self.to_dialler.popleft()
        process = self.dialler
        if not process.alive or not self.dialler_open:
            return
        match frame:
            case HelloReply():
                if frame.refusal is not None:
                    process.refusals.append(frame.refusal)
                    self.close_at_dialler()
                    return
                self.is_answered = True
                orders = process.formation.answered(
                    self.accepter.node_id, frame.directory_id, frame.cluster_id
                )
                process.carry_out(orders)
                if any(isinstance(order, Refuse) for order in orders):
                    self.close_at_dialler()
            case End():
                self.close_at_dialler()


class World:
    def __init__(self, voters: list[int], seed: int = 0, configured_cluster_id: str | None = None) -> None:
        self.rng = random.Random(seed)
        self.voters = voters
        self.configured_cluster_id = configured_cluster_id
        self.disks = {node_id: Disk(random_uuid(self.rng)) for node_id in voters}
        self.connections: list[Connection] = []
        self.made: list[Formation] = []
        self.processes: dict[int, Process] = {}

    # -- what can happen to nodes ---------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.processes[node_id] = Process(node_id, self.disks[node_id], self)

    def kill(self, node_id: int, *, persisted: bool = False) -> None:
        """`persisted`: what was on its way to the disk arrived there, and nobody was told."""
        process = self.processes.pop(node_id)
        if persisted and process.persisting is not None:
            process.write_to_disk()
        process.alive = False
        for connection in self.connections:
            if connection.dialler is process and connection.dialler_open:
                connection.close_at_dialler()
            if connection.accepter is process and connection.accepter_open:
                connection.close_at_accepter()

    def wipe(self, node_id: int) -> None:
        assert node_id not in self.processes
        self.disks[node_id] = Disk(random_uuid(self.rng))

    def persist(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.processes[node_id].persist()

    def replace(self, node_id: int) -> None:
        """The node loses its volume and is up again at once, empty."""
        self.kill(node_id)
        self.wipe(node_id)
        self.start(node_id)

    # -- what can happen to connections ---------------------------------------------------------------------

    def dial(self, from_node: int, to_node: int) -> Connection:
        dialler, accepter = self.processes[from_node], self.processes[to_node]
        assert self.dialled(dialler, to_node) is None
        connection = Connection(dialler, accepter)
        connection.to_accepter.append(Hello(dialler.disk.directory_id, dialler.formation.cluster_id))
        self.connections.append(connection)
        return connection

    def dialled(self, process: Process, node_id: int) -> Connection | None:
        """The open connection, if any; a process has at most one to each node."""
        for connection in self.connections:
            if (
                connection.dialler is process
                and connection.accepter.node_id == node_id
                and connection.dialler_open
            ):
                return connection
        return None

    def greet(self, from_node: int, to_node: int) -> Connection:
        """Dial, Hello, HelloReply."""
        connection = self.dial(from_node, to_node)
        connection.deliver_to_accepter()
        connection.deliver_to_dialler()
        return connection

    def settle(self) -> None:
        """Everybody dials everybody and all queues and disks drain, in an order drawn from the seed."""
        for _ in range(2000):
            actions: list[Callable[[], object]] = [deliver for _, deliver in self.deliveries()]
            actions += [
                process.persist for process in self.processes.values() if process.persisting is not None
            ]
            actions += [
                partial(self.dial, *pair)
                for pair in self.pairs_to_dial()
                if not self.processes[pair[0]].refusals
            ]
            if not actions:
                return
            self.rng.choice(actions)()
            self.check()
        raise AssertionError("the nodes do not come to rest")

    def pairs_to_dial(self) -> list[tuple[int, int]]:
        return [
            (a, b)
            for a in self.processes
            for b in self.processes
            if a != b and self.dialled(self.processes[a], b) is None
        ]

    def deliveries(self) -> list[tuple[Connection, Callable[[], None]]]:
        """What is on its way. Connections that are over at both ends are forgotten."""
        self.connections = [c for c in self.connections if c.ends() or c.to_accepter or c.to_dialler]
        return [(c, c.deliver_to_accepter) for c in self.connections if c.to_accepter] + [
            (c, c.deliver_to_dialler) for c in self.connections if c.to_dialler
        ]

    # -- the promise ----------------------------------------------------------------------------------------

    def formation_made(self, starter: Process, formation: Formation) -> None:
        """When a formation is made, no intact disk holds another one or is about to."""
        assert starter.node_id == self.voters[0]
        for node_id, disk in self.disks.items():
            assert disk.cluster_id is None, f"formed while node {node_id} has data"
            process = self.processes.get(node_id)
            if process is not None and process is not starter:
                assert process.persisting is None, f"formed while node {node_id} is joining another cluster"
        self.made.append(formation)

    def check(self) -> None:
        """All founding members on intact disks hold the same formation, and are named in it."""
        held: list[Formation] = []
        for node_id, disk in self.disks.items():
            if disk.row_0 is not None:
                assert disk.row_0.directory_of(node_id) == disk.directory_id
                if disk.row_0 not in held:
                    held.append(disk.row_0)
        assert len(held) <= 1, f"two formations: {held}"

    def states(self) -> dict[int, FormationState]:
        return {node_id: self.processes[node_id].formation.state for node_id in sorted(self.processes)}

    def cluster_ids(self) -> set[str | None]:
        return {process.formation.cluster_id for process in self.processes.values()}
