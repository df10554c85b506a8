"""Once a producer has got a transactional id, those before it do nothing that counts (KIP-98): what they send from then
on is not acknowledged. The epochs of a producer id only rise, for clients and in every log, and so do the epochs of the
coordinators in its markers."""

from __future__ import annotations

from typing import NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.control import Marker
from storage.log_types import GroupKey


class Owner(NamedTuple):
    """Whom a transactional id belongs to."""

    producer_id: int
    epoch: int


NOBODY = Owner(-1, -1)


class FencedNeverWrites:
    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        #: (group, producer id) -> the newest epoch in the log.
        self._epochs: dict[tuple[GroupKey, int], int] = {}
        self._coordinator_epochs: dict[tuple[GroupKey, int], int] = {}

    def owner(self, transactional_id: str) -> Owner:
        """As of now: a request that is sent now by somebody before must not be acknowledged."""
        return self._owners.get(transactional_id, NOBODY)

    def got(self, transactional_id: str, before: Owner, now: Owner) -> None:
        """InitProducerId was answered. `before` is of the moment of the request."""
        assert now.producer_id != before.producer_id or now.epoch > before.epoch, (
            f"{before} is followed by {now}"
        )
        known = self.owner(transactional_id)
        if now.producer_id != known.producer_id or now.epoch > known.epoch:
            self._owners[transactional_id] = now

    def acknowledged(self, before: Owner, sender: Owner) -> None:
        """Something of this sender. `before`: whom the id belonged to when it was sent."""
        assert sender.producer_id == before.producer_id and sender.epoch >= before.epoch, (
            f"{sender} is fenced by {before}, and was acknowledged"
        )

    def batch_committed(self, key: GroupKey, header: BatchHeader, marker: Marker | None) -> None:
        """Of a producer with an id, for the first time; those of a partition come in order. `marker`: of a control
        batch."""
        at = key, header.producer_id
        known = self._epochs.get(at, -1)
        assert header.producer_epoch >= known, (
            f"{header.base_offset} of {key} has epoch {header.producer_epoch} of producer {header.producer_id}, "
            f"before it was {known}"
        )
        self._epochs[at] = header.producer_epoch
        if marker is not None:
            known = self._coordinator_epochs.get(at, -1)
            assert marker.coordinator_epoch >= known, (
                f"marker {header.base_offset} of {key} has coordinator epoch {marker.coordinator_epoch}, "
                f"before it was {known}"
            )
            self._coordinator_epochs[at] = marker.coordinator_epoch
