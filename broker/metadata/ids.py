"""Random ids, drawn from the node's injected generator so that a simulated run repeats."""

from __future__ import annotations

import base64
import random
from typing import NamedTuple
from uuid import UUID

#: The topic id of `__cluster_metadata`, the same in every cluster, as Kafka's is.
METADATA_TOPIC_ID = UUID(int=1)
METADATA_TOPIC_NAME = "__cluster_metadata"
OFFSETS_TOPIC_NAME = "__consumer_offsets"
#: Topics of the cluster's own: clients may read them, and not create, delete or write them.
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC_NAME, "__transaction_state", "__share_group_state"})


class NodeIdentity(NamedTuple):
    """Who a node is while it runs."""

    node_id: int
    directory_id: UUID
    """Of its data directory: with an empty disk it is somebody else (replication.md section 3)."""
    boot_id: UUID
    """Made anew at each start of the process."""


def to_base64url(identifier: UUID) -> str:
    """Kafka's text form of an id: 16 bytes, base64 for URLs, 22 characters without padding."""
    return base64.urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode("ascii")


def random_uuid(rng: random.Random) -> UUID:
    """A version 4 UUID whose text form does not start with "-", which tools would take for a flag."""
    while True:
        identifier = UUID(int=rng.getrandbits(128), version=4)
        if not to_base64url(identifier).startswith("-"):
            return identifier


def random_cluster_id(rng: random.Random) -> str:
    return to_base64url(random_uuid(rng))
