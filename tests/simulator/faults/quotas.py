"""Quotas that an administrator sets in the middle of everything: clients are muted, and have to get on all the same.

The limits are what clients here use in a few seconds, so that some wait and nobody starves.
"""

from __future__ import annotations

import random

from protocol.api_keys import ApiKey
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntry,
    OpData,
)
from protocol.messages.describe_client_quotas import EntityData
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.administrator import ask_some_node
from tests.simulator.faults.kind import Fault

#: Key -> a limit that some clients reach.
LIMITS = {"producer_byte_rate": 2_000, "consumer_byte_rate": 10_000, "request_percentage": 5}
ENTITY_TYPES = ("client-id", "user")


def no_quotas() -> AlterClientQuotasRequest:
    """Takes back whatever was set."""
    ops = [OpData(key=key, value=0.0, remove=True) for key in LIMITS]
    entities = [[EntityData(entity_type=entity_type)] for entity_type in ENTITY_TYPES]
    return AlterClientQuotasRequest(entries=[AlterEntry(entity=entity, ops=ops) for entity in entities])


def set_quota(cluster: SimulatedCluster, rng: random.Random) -> None:
    """For every client id, or for all clients together; sometimes it is taken back."""
    key = rng.choice(sorted(LIMITS))
    limit = float(round(LIMITS[key] * rng.uniform(1, 5)))
    entity = EntityData(entity_type=rng.choice(ENTITY_TYPES))
    entry = AlterEntry(entity=[entity], ops=[OpData(key=key, value=limit, remove=rng.random() < 0.3)])
    body = AlterClientQuotasRequest(entries=[entry])
    ask_some_node(cluster, rng, ApiKey.ALTER_CLIENT_QUOTAS, 1, body, AlterClientQuotasResponse)


FAULTS: dict[str, Fault] = {
    "set quota": set_quota,
}
