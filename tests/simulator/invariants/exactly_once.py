"""Whoever reads, transforms and writes in transactions works on everything exactly once (KIP-447): what was committed
with offsets of a group goes on where the one before has stopped, without holes and without overlaps, and the group's
committed offset is its end. Offsets of a transaction count exactly if its records do."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulator.invariants.offsets_never_back import NOTHING, Committed, OffsetsNeverBack
from tests.simulator.invariants.transactions_are_atomic import Transaction, TransactionsAreAtomic


class Work(NamedTuple):
    """What a transaction has worked on: from the offset that was committed, below the one that it commits."""

    start: int
    end: int
    transaction: Transaction


class ExactlyOnce:
    def __init__(self, transactions: TransactionsAreAtomic) -> None:
        self._transactions = transactions
        self._offsets = OffsetsNeverBack()
        self._work: dict[Committed, list[Work]] = {}
        self._final: dict[Committed, int] = {}

    def floor(self, place: Committed) -> int:
        """As `OffsetsNeverBack.floor`."""
        return self._offsets.floor(place)

    def sent(self, place: Committed, work: Work) -> None:
        """An offset is on its way. Its metadata is the name of the transaction."""
        self._offsets.sent(place, work.end)
        self._work.setdefault(place, []).append(work)

    def committed(self, place: Committed, floor: int, end: int) -> None:
        """The end of a transaction with this offset was acknowledged. `floor`: of when its commit was asked for."""
        self._offsets.acknowledged(place, floor, end)

    def fetched(self, place: Committed, floor: int, offset: int, transaction_name: str) -> None:
        """A stable offset. `floor` is of the moment of the request."""
        self._offsets.fetched(place, floor, offset)
        if offset != NOTHING:
            self._transactions.was_committed(transaction_name)

    def ended(self, place: Committed, offset: int) -> None:
        """What is committed when all that work here have stopped."""
        self._final[place] = max(offset, 0)

    def check(self) -> None:
        """After everything healed, and all transactions have ended."""
        for place, final in self._final.items():
            counted = sorted(
                (work.start, work.end, work.transaction.name)
                for work in self._work.get(place, ())
                if work.transaction.is_committed
            )
            position = 0
            for start, end, name in counted:
                assert start == position, (
                    f"{place}: {name} goes on from {start}, done is all below {position}"
                )
                position = end
            assert position == final, f"{place}: committed is {final}, done is all below {position}"
