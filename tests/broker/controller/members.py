"""Nodes reduced to what asks and what answers: links are up or down as a test says, and nothing is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from broker.controller.client import ControllerClient
from broker.controller.server import RequestServer
from broker.metadata.ids import NodeIdentity
from broker.network.peers import PeerIdentity
from broker.scheduling.background import PIECE_S, Background
from broker.scheduling.ticks import Ticks
from protocol import peer
from protocol.controller.brokers import AllocateProducerIdsResult
from protocol.controller.replicas import TransferLeadership, TransferLeadershipResult
from protocol.controller.request import Request
from protocol.controller.topics import FindDeletedTopics, FindDeletedTopicsResult
from tests.simulator.loop import new_loop

CONTROLLER = 1


class Member:
    """One node. Member 1 is the controller and answers at once, mostly with a block of producer ids."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.time_s = 0.0
        self.replayed = 0
        #: Where the decisions lie that this member makes as controller.
        self.decided = 0
        self.links: dict[int, bool] = {}
        self.sent: list[tuple[int, peer.PeerMessage]] = []
        self.loop = new_loop()
        ticks = Ticks(self.loop)
        #: Each step takes half of a piece's time, so that what is large takes many loop iterations. Otherwise a step
        #: takes no time.
        self.is_slow = False
        self._looked_s = 0.0
        background = Background(self.loop, self._look_s)
        me = NodeIdentity(node_id, UUID(int=node_id), UUID(int=(node_id * 1000) << 66))
        #: As other nodes know it.
        self.identity = PeerIdentity(node_id, me.directory_id, me.boot_id, "a cluster", me.directory_id.bytes)
        self.server = RequestServer(lambda: self.time_s, self, self._decide, background, ticks)
        self.server.add_part(TransferLeadership, self._transfer)
        self.client = ControllerClient(
            me,
            lambda: self.time_s,
            self,
            lambda: CONTROLLER,
            lambda: self.replayed,
            self.server.execute,
            background,
            ticks,
        )

    def _look_s(self) -> float:
        self._looked_s += self.is_slow * PIECE_S / 2
        return self._looked_s

    def _decide(self, request: Request[Any], reply: Callable[[Any, int], None]) -> None:
        if isinstance(request, FindDeletedTopics):
            reply(FindDeletedTopicsResult(topic_ids=[]), self.decided)
        else:
            reply(AllocateProducerIdsResult(first=0, count=1000), self.decided)

    def _transfer(self, request: TransferLeadership, reply: Callable[[Any, int], None]) -> None:
        reply(TransferLeadershipResult(error_codes=[0] * len(request.partitions)), 0)

    def tick(self) -> None:
        self.server.tick(self.time_s)
        self.client.tick(self.time_s)

    # -- broker.controller.server.Links --------------------------------------------------------------------

    def is_connected(self, node_id: int) -> bool:
        return self.links.get(node_id, False)

    def send(self, node_id: int, message: peer.PeerMessage) -> None:
        if self.is_connected(node_id):
            self.sent.append((node_id, message))


def connect(one: Member, other: Member) -> None:
    one.links[other.node_id] = other.links[one.node_id] = True


def deliver(asker: Member, answerer: Member) -> None:
    """The asker's requests, then the answers."""
    for _, message in asker.sent:
        assert isinstance(message, peer.ControllerRequest)
        answerer.server.request_received(asker.identity, message)
    for _, message in answerer.sent:
        assert isinstance(message, peer.ControllerResponse)
        asker.client.response_received(message)
    asker.sent, answerer.sent = [], []
