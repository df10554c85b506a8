"""Partitions that move (replication.md sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable

from broker.metadata.records import TopicRecord
from broker.publisher import Publisher
from storage.log_types import GroupKey
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import off

MOVES = ("move partition", "empty node", "fill node")


def _forgotten(give_up: Callable[[Publisher, GroupKey], None]) -> object:
    """With the log goes what the journal knows, so that the node begins as the replica that it was."""

    def forget_too(publisher: Publisher, key: GroupKey) -> None:
        give_up(publisher, key)
        topic = publisher._node.metadata.image.topics.get(key.topic_id)
        if topic is not None and not publisher._is_mine(topic, key.partition):
            publisher._node.replicas.forget(key)

    return forget_too


def _wished_only(_: object) -> object:
    """Who is wished for nowhere has nothing, whether its removal is committed or not."""

    def is_mine(publisher: Publisher, topic: TopicRecord, partition: int) -> bool:
        return publisher._node.config.node_id in topic.partitions[partition].replicas

    return is_mine


MUTATIONS = (
    Mutation(
        "removed-is-somebody-else",
        "A replica that was removed, with its log, comes back under another identity (section 3)",
        off((Publisher, "_give_up", _forgotten)),
        MOVES,
    ),
    Mutation(
        "deleted-when-removed",
        "A replica's log is deleted only on a committed removal (section 4)",
        off((Publisher, "_is_mine", _wished_only)),
        MOVES,
    ),
)
