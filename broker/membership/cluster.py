"""This node among the others: links, who is alive, who leads what, and how the cluster was formed.

The deciding parts are values of their own (`broker.metadata.formation`; liveness is in broker.replication.heartbeat);
this class feeds them with what the links bring and carries out what they order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

import structlog

from broker.config.node_config import NodeConfig
from broker.environment import Network
from broker.membership.identity import StartError
from broker.metadata.formation import (
    ClusterFormation,
    Formation,
    FoundingVoter,
    Order,
    Persist,
    Reconnect,
    Refuse,
    SendForm,
    formation_problem,
)
from broker.metadata.ids import NodeIdentity, cluster_id_problem
from broker.metadata.records import BrokerRecord
from broker.network.accepted_peers import AcceptedPeers
from broker.network.dialled_peers import PeerLink
from broker.network.peers import PeerIdentity
from broker.scheduling.ticks import Ticks
from broker.scheduling.turn import Turn
from broker.security.cluster_secret import refusal_to_listen
from broker.security.handshake import Acceptor, Dialler
from broker.security.proofs import Authenticator
from protocol import peer
from protocol.errors import ErrorCode, ProtocolError
from protocol.peer import PeerMessage

logger = structlog.get_logger()

#: Election timeouts without an echo after which a connection is taken for dead, whatever TCP says of it.
LINK_TIMEOUT_ELECTIONS = 3


class ClusterHost(Protocol):
    """What the cluster's events mean to this node."""

    def form(self, formation: Formation, founding: bool) -> None:
        """Become part of this cluster, durably, before returning."""

    def known_formation(self) -> Formation | None:
        """How the cluster of this node was formed, if that is known here."""

    def group_message(self, sender: PeerIdentity, message: PeerMessage) -> None: ...
    def controller_message(self, sender: PeerIdentity, message: PeerMessage) -> None: ...
    def link_opened(self, node_id: int, boot_id: UUID) -> None:
        """Groups may send to this node again, from what it acknowledged."""

    def link_lost(self, node_id: int) -> None: ...
    def answers_lost(self, node_id: int) -> None:
        """The link on which this node answers us is new: what it said before may not have come."""

    def node_unreachable(self, node_id: int) -> None:
        """The link is closed and could not be made again at once."""

    def ping_received(self, node_id: int, ping: peer.Ping) -> bool:
        """Whether it was taken."""


class Cluster:
    """Implements `broker.network.peers.PeerEvents`."""

    def __init__(
        self,
        me: NodeIdentity,
        config: NodeConfig,
        network: Network,
        turn: Turn,
        loop: asyncio.AbstractEventLoop,
        ticks: Ticks,
        authenticator: Authenticator,
    ) -> None:
        """Raises StartError if this node must not listen for others where its configuration says."""
        own = config.controller_endpoint
        if refusal := refusal_to_listen(authenticator.secret, own.host, own.name):
            raise StartError(refusal)
        self._me = me
        self._config = config
        self._loop = loop
        self._authenticator = authenticator
        self._host: ClusterHost
        self.formation: ClusterFormation
        self.links = {
            node_id: PeerLink(
                node_id, address.host, address.port, network, turn, self, partial(self._dial, node_id)
            )
            for node_id, address in config.quorum_voters.items()
            if node_id != config.node_id
        }
        accepted = AcceptedPeers(self, partial(Acceptor, authenticator, me.node_id))
        self._accepted = accepted
        #: Protocol factory of the controller listener.
        self.accept = accepted.accept
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting_for: str | None = None
        self._is_closed = False

        ticks.every(config.heartbeat_interval_ms / 1000, self._tick)

    # -- life --------------------------------------------------------------------------------------------

    def use(self, host: ClusterHost, formation: ClusterFormation) -> None:
        """To be called before anybody is accepted: who hears of events, and what this node knows of its cluster."""
        self._host = host
        self.formation = formation

    @property
    def cluster_id(self) -> str | None:
        """None: this node belongs to no cluster yet."""
        return self.formation.cluster_id

    def start(self) -> None:
        for link in self.links.values():
            task = self._loop.create_task(link.run())
            task.add_done_callback(_raise_what_ended)
            self._tasks.append(task)
        self._carry_out(self.formation.start())

    def close(self) -> None:
        """End all links. Nothing that peers say is heard any more, not even by a connection in the making."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for link in self.links.values():
            link.close()
        self._accepted.abort_all()

    def _dial(self, node_id: int) -> Dialler:
        address = self._config.quorum_voters[node_id]
        return Dialler(self._authenticator, self._me.node_id, node_id, str(address))

    def _tick(self, now: float) -> None:
        """Dial anew where a connection has gone silent. Look whether it is known by now how the cluster was formed. Say
        why there is no cluster yet, if that changes."""
        oldest = now - LINK_TIMEOUT_ELECTIONS * self._config.election_timeout_ms / 1000
        for link in self.links.values():
            if link.is_ready and link.last_echo_at < oldest:
                logger.warning("no echo from a peer, dialling anew", node_id=link.node_id)
                link.reconnect()
        if self.formation.formation is None and (known := self._host.known_formation()) is not None:
            self._carry_out(self.formation.learned(known))
        waiting_for = self.formation.waiting_for()
        if waiting_for != self._waiting_for:
            self._waiting_for = waiting_for
            if waiting_for is not None:
                logger.info("no cluster yet", reason=waiting_for)

    def send(self, node_id: int, message: PeerMessage) -> None:
        link = self.links.get(node_id)
        if link is not None:
            link.send(message)

    def send_to(self, directory: tuple[int, bytes], message: PeerMessage) -> None:
        """To a replica's home: nothing is sent where the node has another directory by now."""
        link = self._link_to(directory)
        if link is not None:
            link.send(message)

    def prepare_to(self, directory: tuple[int, bytes], message: PeerMessage) -> Callable[[], None] | None:
        """As `send_to`, at once: the first half of it. What is returned is the second."""
        link = self._link_to(directory)
        return None if link is None else link.prepare(message)

    def _link_to(self, directory: tuple[int, bytes]) -> PeerLink | None:
        link = self.links.get(directory[0])
        if link is not None and link.identity is not None and link.identity.directory == directory[1]:
            return link
        return None

    def directory_of(self, node_id: int) -> UUID | None:
        """The directory of a node that is connected now."""
        link = self.links.get(node_id)
        return link.identity.directory_id if link is not None and link.identity is not None else None

    def is_alive(self, broker: BrokerRecord) -> bool:
        """Whether that very registration is connected now, or this node."""
        if broker.node_id == self._me.node_id:
            return broker.directory_id == self._me.directory_id
        return self.directory_of(broker.node_id) == broker.directory_id

    @property
    def is_anybody_connected(self) -> bool:
        return any(link.is_ready for link in self.links.values())

    def is_connected(self, node_id: int) -> bool:
        link = self.links.get(node_id)
        return link is not None and link.is_ready

    # -- PeerEvents --------------------------------------------------------------------------------------

    def hello(self) -> peer.Hello:
        return peer.Hello(
            cluster_id=self.formation.cluster_id,
            node_id=self._me.node_id,
            directory_id=self._me.directory_id,
            boot_id=self._me.boot_id,
        )

    def check_hello(self, hello: peer.Hello) -> tuple[ErrorCode, str]:
        if hello.node_id not in self.links and hello.node_id != self._me.node_id:
            return ErrorCode.UNKNOWN_CONTROLLER_ID, f"node {hello.node_id} is not in controller.quorum.voters"
        if hello.cluster_id is not None and (problem := cluster_id_problem(hello.cluster_id)):
            return ErrorCode.INVALID_REQUEST, problem
        refusal = self.formation.introduced(hello.node_id, hello.directory_id, hello.cluster_id)
        return (ErrorCode.NONE, "") if refusal is None else (refusal.code, refusal.message)

    def peer_introduced(self, identity: PeerIdentity) -> None:
        """A peer has dialled us. If it is another process than the one our own connection leads to, that one is dead
        and the news of it was lost."""
        link = self.links[identity.node_id]
        if link.identity is not None and link.identity.boot_id != identity.boot_id:
            link.reconnect()

    def first_peer_message(self, node_id: int) -> None:
        """It may have heard us for a while and answered to nobody."""
        if self.is_connected(node_id):
            self._host.answers_lost(node_id)

    def peer_connected(self, identity: PeerIdentity) -> None:
        self._carry_out(self.formation.answered(identity.node_id, identity.directory_id, identity.cluster_id))
        if not self.is_connected(identity.node_id):
            return
        self.links[identity.node_id].last_echo_at = self._loop.time()
        self._host.link_opened(identity.node_id, identity.boot_id)

    def peer_disconnected(self, node_id: int) -> None:
        self.formation.closed(node_id)
        self._host.link_lost(node_id)

    def peer_unreachable(self, node_id: int) -> None:
        self._host.node_unreachable(node_id)

    def peer_message(self, sender: PeerIdentity, message: PeerMessage) -> None:
        if self._is_closed:
            return
        match message:
            case peer.Ping():
                if message.boot_id != sender.boot_id:
                    raise ProtocolError("Ping: of another process than the one that introduced itself")
                is_taken = self._host.ping_received(sender.node_id, message)
                if is_taken and message.echo_boot_id == self._me.boot_id:
                    self.links[sender.node_id].record_echo(message.echo_number, self._loop.time())
            case peer.Form():
                voters = tuple(FoundingVoter(voter.node_id, voter.directory_id) for voter in message.voters)
                formation = Formation(message.cluster_id, voters)
                if (problem := formation_problem(formation)) is not None:
                    raise ProtocolError(f"Form: {problem}")
                self._carry_out(self.formation.form_received(sender.node_id, sender.directory_id, formation))
            case peer.ControllerRequest() | peer.ControllerResponse():
                self._host.controller_message(sender, message)
            case _:
                self._host.group_message(sender, message)

    # -- formation ---------------------------------------------------------------------------------------

    def _carry_out(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Persist(formation, founding):
                    self._host.form(formation, founding)
                    self._carry_out(self.formation.persisted())
                case SendForm(node_id, formation):
                    voters = [
                        peer.FormVoter(node_id=voter.node_id, directory_id=voter.directory_id)
                        for voter in formation.voters
                    ]
                    self.send(node_id, peer.Form(cluster_id=formation.cluster_id, voters=voters))
                case Reconnect(node_id):
                    self.links[node_id].reconnect()
                case Refuse(code, message):
                    logger.error("peer refused", code=code.name, reason=message)


def _raise_what_ended(link: asyncio.Task[None]) -> None:
    """A link dials for ever. If it ends with an error, that goes to the loop's handler, and the node stops."""
    if not link.cancelled():
        link.result()
