"""An internal topic, whose partitions hold the state of a coordinator: which partition has a key, who leads it, and how
the topic is created."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from protocol.controller.topics import CreateTopics, CreateTopicsResult, NewTopic, TopicSetting
from protocol.errors import ErrorCode, KafkaError

logger = structlog.get_logger()

_HASH_BLOCK = 256
#: Falling to 31 ** 0, modulo 2 ** 32.
_POWERS_OF_31 = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_HASH_BLOCK))]


@dataclass(frozen=True, slots=True)
class InternalTopicSpec:
    """What a coordinator wants of its topic. A topic that exists is left as it is."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    check_key: Callable[[str], None]
    """Raises KafkaError for a key that no record can hold. Called before the key is hashed: a request can bring
    megabytes."""


class InternalTopic:
    def __init__(
        self,
        spec: InternalTopicSpec,
        metadata: MetadataService,
        controller: ControllerClient,
        leader_of: Callable[[str, int], tuple[int, int]],
        endpoint_of: Callable[[int, str], tuple[str, int]],
    ) -> None:
        """`leader_of`: (topic, partition) -> (node id or -1, leader epoch). `endpoint_of`: (node id, listener) ->
        (host, port), the port -1 where there is none."""
        self.name = spec.name
        self._spec = spec
        self._metadata = metadata
        self._controller = controller
        self._leader_of = leader_of
        self._endpoint_of = endpoint_of
        self._is_creating = False

    def partition_of(self, key: str) -> int:
        """-1: the topic does not exist yet. Raises what `check_key` of the spec raises."""
        self._spec.check_key(key)
        topic = self._metadata.image.topic_named(self.name)
        return -1 if topic is None else partition_of(key, len(topic.partitions))

    def leader_of_key(self, key: str) -> int:
        """Who leads the partition of a key, as far as this node knows; -1: nobody. Raises what `check_key` of the spec
        raises."""
        partition = self.partition_of(key)
        return -1 if partition < 0 else self._leader_of(self.name, partition)[0]

    def find_coordinator(self, key: str, listener: str) -> tuple[int, str, int]:
        """(node id, host, port) of the coordinator of a key. Raises COORDINATOR_NOT_AVAILABLE, and what `check_key` of
        the spec raises. The first question has the topic created."""
        partition = self.partition_of(key)
        if partition < 0:
            self.create()
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} is being created")
        leader, _ = self._leader_of(self.name, partition)
        host, port = self._endpoint_of(leader, listener)
        if port < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name}-{partition} has no leader")
        return leader, host, port

    def create(self) -> None:
        """Has the controller create the topic. Does nothing while an earlier call is under way."""
        if self._is_creating:
            return
        self._is_creating = True
        topic = NewTopic(
            name=self.name,
            num_partitions=self._spec.num_partitions,
            replication_factor=self._spec.replication_factor,
            settings=[TopicSetting(name=name, value=value) for name, value in self._spec.configs.items()],
        )
        self._controller.call(CreateTopics(topics=[topic], is_internal=True), self._created)

    def _created(self, result: CreateTopicsResult | KafkaError) -> None:
        self._is_creating = False
        if isinstance(result, KafkaError):
            logger.warning(
                "an internal topic is not created", topic=self.name, reason=str(result), cause=self.name
            )
            return
        for topic in result.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning(
                    "an internal topic is not created",
                    topic=self.name,
                    reason=topic.error_message,
                    cause=self.name,
                )


def partition_of(key: str, partitions: int) -> int:
    """As Kafka maps a key: Java's hash of the text, without its sign. By blocks, in the interpreter's own loops: one
    request can name megabytes of keys."""
    units: Sequence[int]
    if key.isascii():
        units = key.encode()
    else:
        units = memoryview(key.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")).cast("H")
    hashed = 0
    for start in range(0, len(units), _HASH_BLOCK):
        block = units[start : start + _HASH_BLOCK]
        powers = _POWERS_OF_31[_HASH_BLOCK - len(block) :]
        hashed = (31 * powers[0] * hashed + sum(map(operator.mul, block, powers))) & 0xFFFFFFFF
    magnitude = hashed if hashed < 1 << 31 else (1 << 32) - hashed
    return (0 if magnitude == 1 << 31 else magnitude) % partitions
