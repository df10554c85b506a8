"""`__consumer_offsets` as a topic: which partition of it a group has, who coordinates it, and how it comes about."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from broker.config.node_config import NodeConfig
from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.groups.group import check_group_id
from broker.metadata.ids import OFFSETS_TOPIC_NAME
from protocol.errors import ErrorCode, KafkaError

logger = structlog.get_logger()

_HASH_BLOCK = 256
#: Falling to 31 ** 0, modulo 2 ** 32.
_POWERS_OF_31 = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_HASH_BLOCK))]


class OffsetsTopic:
    def __init__(
        self,
        config: NodeConfig,
        metadata: MetadataService,
        controller: ControllerClient,
        leader_of: Callable[[str, int], tuple[int, int]],
        endpoint_of: Callable[[int, str], tuple[str, int]],
    ) -> None:
        """`leader_of`: (topic, partition) -> (node id or -1, leader epoch). `endpoint_of`: (node id, listener) ->
        (host, port), the port -1 where there is none."""
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._leader_of = leader_of
        self._endpoint_of = endpoint_of
        self._is_creating = False

    def partition_of(self, group_id: str) -> int:
        """-1: there is no `__consumer_offsets` yet. Raises INVALID_GROUP_ID for ids that no record could hold."""
        check_group_id(group_id, may_be_empty=True)
        topic = self._metadata.image.topic_named(OFFSETS_TOPIC_NAME)
        return -1 if topic is None else partition_of(group_id, len(topic.partitions))

    def find(self, group_id: str, listener: str) -> tuple[int, str, int]:
        """(node id, host, port) of a group's coordinator. Raises INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE; the first
        question has the topic created."""
        partition = self.partition_of(group_id)
        if partition < 0:
            self.create()
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC_NAME} is being created")
        leader, _ = self._leader_of(OFFSETS_TOPIC_NAME, partition)
        host, port = self._endpoint_of(leader, listener)
        if port < 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC_NAME}-{partition} has no leader"
            )
        return leader, host, port

    def create(self) -> None:
        """Have the controller create `__consumer_offsets`."""
        if self._is_creating:
            return
        self._is_creating = True
        config = self._config
        replication_factor = config.offsets_topic_replication_factor
        if "offsets.topic.replication.factor" not in config.given:
            replication_factor = min(replication_factor, len(config.quorum_voters))
        topic = {
            "name": OFFSETS_TOPIC_NAME,
            "num_partitions": config.offsets_topic_num_partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [
                ["cleanup.policy", "compact"],
                ["compression.type", "producer"],
                # A majority it always is. More would have every answer to a member wait for a node that is down.
                ["min.insync.replicas", "1"],
                ["segment.bytes", str(config.offsets_topic_segment_bytes)],
            ],
        }
        arguments = {"topics": [topic], "validate_only": False, "is_internal": True}
        self._controller.call("create_topics", arguments, self._created)

    def _created(self, result: dict[str, Any]) -> None:
        self._is_creating = False
        (topic,) = result.get("topics", [result])
        if topic["error_code"] not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("consumer groups have no topic yet", reason=topic.get("message"))


def partition_of(group_id: str, partitions: int) -> int:
    """As Kafka maps a group: Java's hash of the text, without its sign. By blocks, in the interpreter's own loops: one
    request can name megabytes of groups."""
    units: Sequence[int]
    if group_id.isascii():
        units = group_id.encode()
    else:
        units = memoryview(group_id.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")).cast("H")
    hashed = 0
    for start in range(0, len(units), _HASH_BLOCK):
        block = units[start : start + _HASH_BLOCK]
        powers = _POWERS_OF_31[_HASH_BLOCK - len(block) :]
        hashed = (31 * powers[0] * hashed + sum(map(operator.mul, block, powers))) & 0xFFFFFFFF
    magnitude = hashed if hashed < 1 << 31 else (1 << 32) - hashed
    return (0 if magnitude == 1 << 31 else magnitude) % partitions
