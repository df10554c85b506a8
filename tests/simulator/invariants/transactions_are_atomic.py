"""A transaction counts as a whole or not at all (KIP-98): the markers that are committed in its partitions say the
same, they say what its producer was told, and nothing of it is left without one.

What counts is taken from the logs: a marker ends what its producer has committed in that partition before. So what a
late or doubled request does to the wrong transaction is noticed when its marker is committed (KAFKA-17754), and a
record of no transaction at the end, because no marker ever comes (KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.control import Marker
from storage.log_types import GroupKey


@dataclass(eq=False)
class Transaction:
    """One transaction, as its producer knows it."""

    name: str
    #: Its producer has asked for the commit. Otherwise it must never be committed, whoever ends it.
    may_commit: bool = False
    #: Whether it is committed, as its producer was told; None: it was not told.
    told: bool | None = None
    #: Whether it is committed, as the first marker said, or an offset that somebody fetched.
    is_committed: bool | None = None
    #: Contents of the batches that were sent, and of those whose marker is committed.
    sent: dict[bytes, None] = field(default_factory=dict)
    ended: dict[bytes, None] = field(default_factory=dict)


class _Open(NamedTuple):
    """Of one producer in one partition: the batches that no marker has ended yet."""

    first_offset: int
    batches: list[tuple[int, bytes]]


class TransactionsAreAtomic:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        #: (group, base offset of a transactional batch) -> whether it is committed. Only those whose marker is.
        self.outcomes: dict[tuple[GroupKey, int], bool] = {}
        self._of_batch: dict[bytes, Transaction] = {}
        self._open: dict[GroupKey, dict[int, _Open]] = {}

    # -- what producers do, and are told

    def begin(self, name: str) -> Transaction:
        assert name not in self.transactions
        transaction = self.transactions[name] = Transaction(name)
        return transaction

    def sent(self, transaction: Transaction, digest: bytes) -> None:
        """A batch is on its way."""
        transaction.sent[digest] = None
        self._of_batch[digest] = transaction

    def told(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Its end was acknowledged."""
        assert transaction.told in (None, is_commit), f"{transaction.name}: two answers"
        transaction.told = is_commit
        self._check(transaction)

    def was_committed(self, name: str) -> None:
        """Somebody was shown an offset of it."""
        self._end(self.transactions[name], is_commit=True)

    # -- what is committed in the logs

    def batch_committed(
        self, key: GroupKey, header: BatchHeader, digest: bytes, marker: Marker | None
    ) -> None:
        """A batch of a producer with an id, for the first time; those of a partition come in order. `marker`: of a
        control batch."""
        open_here = self._open.setdefault(key, {})
        if header.is_control:
            ended = open_here.pop(header.producer_id, None)
            if ended is not None and marker is not None:
                self._marker_committed(key, ended, marker)
        elif header.is_transactional:
            found = open_here.setdefault(header.producer_id, _Open(header.base_offset, []))
            found.batches.append((header.base_offset, digest))

    def _marker_committed(self, key: GroupKey, ended: _Open, marker: Marker) -> None:
        for base_offset, digest in ended.batches:
            self.outcomes[key, base_offset] = marker.is_commit
            transaction = self._of_batch.get(digest)
            if transaction is not None:
                transaction.ended[digest] = None
                self._end(transaction, is_commit=marker.is_commit)

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        known = transaction.is_committed
        assert known in (None, is_commit), f"{transaction.name} is committed in part"
        transaction.is_committed = is_commit
        self._check(transaction)

    @staticmethod
    def _check(transaction: Transaction) -> None:
        if transaction.is_committed is None:
            return
        assert transaction.told in (None, transaction.is_committed), (
            f"{transaction.name}: committed is {transaction.is_committed}, its producer was told {transaction.told}"
        )
        assert transaction.may_commit or not transaction.is_committed, (
            f"{transaction.name} is committed, and its producer never asked for that"
        )

    def first_open_offset(self, key: GroupKey) -> int | None:
        """Where the earliest transaction begins whose marker no replica has committed."""
        return min((found.first_offset for found in self._open.get(key, {}).values()), default=None)

    # -- in the end

    def check_all_ended(self, keys: Collection[GroupKey]) -> None:
        """After everything healed and all producers stopped: no transaction is open in these partitions, and what was
        committed is complete."""
        for key in keys:
            assert not self._open.get(key), f"{key} has open transactions: {self._open[key]}"
        for transaction in self.transactions.values():
            is_committed = transaction.told or transaction.is_committed
            left = transaction.sent.keys() - transaction.ended.keys()
            assert not (is_committed and left), (
                f"{transaction.name} is committed, {len(left)} batches are not"
            )
