"""How the transaction coordinator creates `__transaction_state`."""

from __future__ import annotations

from broker.config.node_config import NodeConfig
from broker.coordinator.internal_topic import InternalTopicSpec
from broker.metadata.ids import TRANSACTION_TOPIC_NAME
from protocol.errors import ErrorCode, KafkaError

#: A record holds the id with an int16 as its length (in bytes).
MAX_ID_BYTES = 32767


def transaction_topic_spec(config: NodeConfig) -> InternalTopicSpec:
    replication_factor = config.transaction_topic_replication_factor
    if "transaction.state.log.replication.factor" not in config.given:
        replication_factor = min(replication_factor, len(config.quorum_voters))
    return InternalTopicSpec(
        TRANSACTION_TOPIC_NAME,
        config.transaction_topic_num_partitions,
        replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            # A majority has every committed record anyway, as in `__consumer_offsets`.
            "min.insync.replicas": "1",
            "segment.bytes": str(config.transaction_topic_segment_bytes),
        },
        check_transactional_id,
    )


def check_transactional_id(transactional_id: str) -> None:
    """Raises INVALID_REQUEST for an id that no record can hold."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    # A character has one byte or more: a long text is not encoded.
    if len(transactional_id) > MAX_ID_BYTES or len(transactional_id.encode()) > MAX_ID_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a transactional id has at most {MAX_ID_BYTES} bytes")
