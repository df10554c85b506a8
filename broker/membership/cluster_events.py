"""What the other nodes' coming, going and speaking means to this one: who of its parts is told, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from broker.metadata.formation import Formation
from protocol import peer
from protocol.peer import PeerMessage

if TYPE_CHECKING:
    from broker.node import Node


class ClusterEvents:
    """Implements `broker.membership.cluster.ClusterHost`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Of every record here and at its leader: without a call in between.
        self.group_message = node.messages.received

    def form(self, formation: Formation, founding: bool) -> None:
        self._node.form(formation, founding)

    def controller_message(self, sender: int, message: PeerMessage) -> None:
        if isinstance(message, peer.Forward):
            self._node.controller.forwarded(sender, message)
        elif isinstance(message, peer.ForwardReply):
            self._node.controller.reply(message)

    def link_opened(self, node_id: int, boot_id: UUID) -> None:
        self._node.heartbeat.connected(node_id, boot_id.bytes)
        self._node.controller.node_connected(node_id)
        self.answers_lost(node_id)

    def answers_lost(self, node_id: int) -> None:
        self._node.controller.answers_lost(node_id)
        now = self._node.now()
        for replica in list(self._node.replicas.by_key.values()):
            replica.apply(replica.group.peer_reachable(node_id, now))

    def link_lost(self, node_id: int) -> None:
        for replica in self._node.replicas.by_key.values():
            replica.group.peer_lost(node_id)
        self._node.controller.answers_lost(node_id)

    def node_unreachable(self, node_id: int) -> None:
        self._node.heartbeat.disconnected(node_id)

    def ping_received(self, node_id: int, ping: peer.Ping) -> None:
        self._node.heartbeat.ping_received(node_id, ping)
