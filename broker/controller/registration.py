"""This start of the node, recorded by the controller: who it is, where it listens, which of its volumes it has.

Only with its own registration replayed is a node's metadata image current: the record was appended after the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from broker.metadata.image import BrokerRemoved
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.node import Node

logger = structlog.get_logger()


class Registration:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_asked_for = False
        #: This start was registered, and somebody has taken that back.
        self._is_withdrawn = False

    @property
    def is_current(self) -> bool:
        """Whether the image has this very start."""
        own = self._node.metadata.image.brokers.get(self._node.config.node_id)
        return (
            own is not None
            and own.boot_id == self._node.boot_id
            and own.directory_id == self._node.directory_id
            and own.metadata_incarnation == self._metadata_incarnation
        )

    def tick(self) -> None:
        """Have the controller record this start, unless it has."""
        node, config = self._node, self._node.config
        if node.metadata.replica is None:
            return  # peers tell who leads before a wiped node has joined their cluster
        if self._is_withdrawn or self._is_asked_for or node.controller_id() < 0 or self.is_current:
            return
        self._is_asked_for = True
        endpoints = {x.name: tuple(config.advertised_address(x)) for x in config.client_listeners}
        arguments = {
            "cluster_id": node.cluster_id,
            "node_id": config.node_id,
            "directory_id": str(node.directory_id),
            "boot_id": str(node.boot_id),
            "endpoints": endpoints,
            "peer": tuple(config.peer_address),
            "metadata_incarnation": self._metadata_incarnation,
        }
        node.controller.call("register_broker", arguments, self._answered)

    def _answered(self, result: dict[str, Any]) -> None:
        self._is_asked_for = False
        if result["error_code"] != ErrorCode.NONE:
            logger.warning("registration refused", reason=result.get("message"))

    def broker_removed(self, change: BrokerRemoved) -> None:
        if change.old.boot_id == self._node.boot_id:
            logger.warning(
                "this broker was unregistered; until it is started again it only votes on metadata"
            )
            self._is_withdrawn = True

    @property
    def _metadata_incarnation(self) -> int:
        replica = self._node.metadata.replica
        assert replica is not None, "nobody registers before joining a cluster"
        return replica.group.self_id.incarnation
