"""The features of this build (KIP-584): what clients are told about protocols that go beyond versions of single APIs.

The finalized level of a feature holds for the whole cluster, and clients count on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class UpgradeType(IntEnum):
    """What an update may do with a level. Numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """One that loses nothing. With the features of this build no downgrade does, so the next means the same."""
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    highest: int
    """The lowest level is 0 and says that the feature is off."""
    default: int
    """The finalized level while the metadata has no record of one."""
    setting: str | None = None
    """The setting of each node that decides about the level. None: the metadata does."""


GROUP_VERSION = Feature("group.version", 1, 1, setting="group.coordinator.rebalance.protocols")
"""1: the consumer protocol (KIP-848)."""
TRANSACTION_VERSION = Feature("transaction.version", 2, 2)
"""2: clients leave it to the broker to add partitions to a transaction, and the end of a transaction raises the epoch
(KIP-890). 0 and 1 are the same for clients; in Kafka they differ in the records of transactions. The level is only what
clients are told: requests of both kinds are served at every level."""

FEATURES = {feature.name: feature for feature in (GROUP_VERSION, TRANSACTION_VERSION)}
