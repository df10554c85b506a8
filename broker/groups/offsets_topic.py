"""How the group coordinator creates `__consumer_offsets`."""

from __future__ import annotations

from broker.config.node_config import NodeConfig
from broker.coordinator.internal_topic import InternalTopicSpec
from broker.groups.group import check_group_id
from broker.metadata.ids import OFFSETS_TOPIC_NAME


def offsets_topic_spec(config: NodeConfig) -> InternalTopicSpec:
    replication_factor = config.offsets_topic_replication_factor
    if "offsets.topic.replication.factor" not in config.given:
        replication_factor = min(replication_factor, len(config.quorum_voters))
    return InternalTopicSpec(
        OFFSETS_TOPIC_NAME,
        config.offsets_topic_num_partitions,
        replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            # A majority has every committed record anyway. With a higher value every answer to a member would have to
            # wait for a node that is down.
            "min.insync.replicas": "1",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        _check_key,
    )


def _check_key(group_id: str) -> None:
    """Raises INVALID_GROUP_ID."""
    check_group_id(group_id, may_be_empty=True)
