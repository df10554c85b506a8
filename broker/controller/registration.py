"""This start of the node, recorded by the controller: who it is, where it listens, which of its volumes it has.

Only with its own registration replayed is a node's metadata image current: the record was appended after the start.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from broker.config.node_config import NodeConfig
from broker.config.values import Listener
from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.metadata.ids import NodeIdentity
from broker.metadata.image import BrokerRemoved, Change
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol.controller.brokers import Endpoint, RegisterBroker
from protocol.controller.request import EmptyResult
from protocol.errors import KafkaError

logger = structlog.get_logger()


class Registration:
    def __init__(
        self,
        me: NodeIdentity,
        config: NodeConfig,
        metadata: MetadataService,
        controller: ControllerClient,
        cluster_id: Callable[[], str | None],
        controller_id: Callable[[], int],
        ticks: Ticks,
    ) -> None:
        self._me = me
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id
        self._controller_id = controller_id
        self._is_asked_for = False
        #: This start was registered, and somebody has taken that back.
        self._is_withdrawn = False
        self._is_closed = False
        metadata.on_change.append(self._changed)
        ticks.every(SLOW_TICK_S, self.tick)

    def close(self) -> None:
        """The node stops: nothing is registered any more."""
        self._is_closed = True

    def is_current(self) -> bool:
        """Whether the image has this very start."""
        own = self._metadata.image.brokers.get(self._me.node_id)
        return (
            own is not None
            and own.boot_id == self._me.boot_id
            and own.directory_id == self._me.directory_id
            and own.metadata_incarnation == self._metadata_incarnation
        )

    def tick(self, now: float) -> None:
        """Have the controller record this start, unless it has."""
        if self._is_closed or self._metadata.replica is None:
            return  # peers tell who leads before a wiped node has joined their cluster
        if self._is_withdrawn or self._is_asked_for or self._controller_id() < 0 or self.is_current():
            return
        self._is_asked_for = True
        cluster_id = self._cluster_id()
        assert cluster_id is not None, "whoever has a replica of the metadata belongs to a cluster"
        config = self._config
        request = RegisterBroker(
            cluster_id=cluster_id,
            node_id=self._me.node_id,
            directory_id=self._me.directory_id,
            boot_id=self._me.boot_id,
            endpoints=[_endpoint(config, listener) for listener in config.client_listeners],
            peer_host=config.peer_address.host,
            peer_port=config.peer_address.port,
            metadata_incarnation=self._metadata_incarnation,
        )
        self._controller.call(request, self._answered)

    def _answered(self, result: EmptyResult | KafkaError) -> None:
        self._is_asked_for = False
        if isinstance(result, KafkaError):
            logger.warning("registration refused", reason=str(result))

    def _changed(self, change: Change) -> None:
        if isinstance(change, BrokerRemoved) and change.old.boot_id == self._me.boot_id:
            logger.warning(
                "this broker was unregistered; until it is started again it only votes on metadata"
            )
            self._is_withdrawn = True

    @property
    def _metadata_incarnation(self) -> int:
        replica = self._metadata.replica
        assert replica is not None, "nobody registers before joining a cluster"
        return replica.group.self_id.incarnation


def _endpoint(config: NodeConfig, listener: Listener) -> Endpoint:
    host, port = config.advertised_address(listener)
    return Endpoint(listener=listener.name, host=host, port=port)
