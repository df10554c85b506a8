"""Random ids, drawn from the node's injected generator so that a simulated run repeats."""

from __future__ import annotations

import base64
import random
import re
from typing import NamedTuple
from uuid import UUID

#: The topic id of `__cluster_metadata`, the same in every cluster, as Kafka's is.
METADATA_TOPIC_ID = UUID(int=1)
METADATA_TOPIC_NAME = "__cluster_metadata"
OFFSETS_TOPIC_NAME = "__consumer_offsets"
TRANSACTION_TOPIC_NAME = "__transaction_state"
#: Topics of the cluster's own: clients may read them, and not create, delete or write them.
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC_NAME, TRANSACTION_TOPIC_NAME, "__share_group_state"})


#: Kafka's limit: `<name>-<partition>` has to be a file name of at most 255 bytes.
MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_CLUSTER_ID_LENGTH = 200


def topic_name_problem(name: str) -> str | None:
    """Why no topic can have this name. None: one can."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f'a topic cannot be named "{name}"'
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"a topic name has at most {MAX_TOPIC_NAME_LENGTH} characters, this one has {len(name)}"
    if _LEGAL_TOPIC_NAME.fullmatch(name) is None:
        return f"topic name {name!r} may contain only ASCII letters, digits, '.', '_' and '-'"
    return None


def cluster_id_problem(cluster_id: str) -> str | None:
    """Why no cluster can have this id. None: one can. It is written on a line of its own (`storage.directory`)."""
    if not 0 < len(cluster_id) <= MAX_CLUSTER_ID_LENGTH:
        return f"a cluster id has 1 to {MAX_CLUSTER_ID_LENGTH} characters, this one has {len(cluster_id)}"
    if not cluster_id.isprintable() or cluster_id != cluster_id.strip():
        return f"cluster id {cluster_id!r} may contain only printable characters, and no space at its ends"
    return None


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
