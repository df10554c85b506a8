"""What the other nodes' coming, going and speaking means to this one: who of its parts is told, and in which order."""

from __future__ import annotations

from uuid import UUID

from broker.controller.client import ControllerClient
from broker.controller.server import RequestServer
from broker.membership.joined_cluster import JoinedCluster
from broker.network.peers import PeerIdentity
from broker.replication.heartbeat import Heartbeat
from broker.replication.messages import GroupMessages
from broker.replication.replicas import Replicas
from protocol import peer
from protocol.peer import PeerMessage


class ClusterEvents:
    """Implements `broker.membership.cluster.ClusterHost`."""

    def __init__(
        self,
        joined: JoinedCluster,
        controller: ControllerClient,
        requests: RequestServer,
        heartbeat: Heartbeat,
        replicas: Replicas,
        messages: GroupMessages,
    ) -> None:
        self.form = joined.join
        self.known_formation = joined.known_formation
        self._controller = controller
        self._requests = requests
        self._heartbeat = heartbeat
        self._replicas = replicas
        #: Of every record here and at its leader: without a call in between.
        self.group_message = messages.received

    def controller_message(self, sender: PeerIdentity, message: PeerMessage) -> None:
        if isinstance(message, peer.ControllerRequest):
            self._requests.request_received(sender, message)
        elif isinstance(message, peer.ControllerResponse):
            self._controller.response_received(message)

    def link_opened(self, node_id: int, boot_id: UUID) -> None:
        self._heartbeat.connected(node_id, boot_id.bytes)
        self._requests.node_connected(node_id)
        self.answers_lost(node_id)

    def answers_lost(self, node_id: int) -> None:
        self._controller.answers_lost(node_id)
        for replica in list(self._replicas.by_key.values()):
            replica.driver.peer_reachable(node_id)

    def link_lost(self, node_id: int) -> None:
        for replica in self._replicas.by_key.values():
            replica.driver.peer_lost(node_id)
        self._controller.answers_lost(node_id)

    def node_unreachable(self, node_id: int) -> None:
        self._heartbeat.disconnected(node_id)

    def ping_received(self, node_id: int, ping: peer.Ping) -> bool:
        return self._heartbeat.ping_received(node_id, ping)
