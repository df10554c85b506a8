"""Readers of committed data are given records of committed transactions, all of these, and no others (KIP-98; users.md:
aborted reads). What they are told to be stable is below everything whose end is not committed yet, or deleted."""

from __future__ import annotations

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey
from tests.simulator.invariants.transactions_are_atomic import TransactionsAreAtomic


class OnlyCommittedIsRead:
    def __init__(self, transactions: TransactionsAreAtomic) -> None:
        self._transactions = transactions

    def given(self, key: GroupKey, header: BatchHeader) -> None:
        """A reader of committed data gave a batch to its application."""
        if header.is_transactional:
            outcome = self._transactions.outcomes.get((key, header.base_offset))
            assert outcome, f"{header.base_offset} of {key} is read, {_words(outcome)}"

    def left_out(self, key: GroupKey, header: BatchHeader) -> None:
        """... or left it out, because it was told that it is aborted."""
        outcome = self._transactions.outcomes.get((key, header.base_offset))
        assert outcome is False, f"{header.base_offset} of {key} is left out, {_words(outcome)}"

    def told_stable(self, key: GroupKey, last_stable_offset: int, log_start_offset: int) -> None:
        """To any reader."""
        first_open = self._transactions.first_open_offset(key)
        assert first_open is None or last_stable_offset <= max(first_open, log_start_offset), (
            f"{key} is stable below {last_stable_offset}, the transaction at {first_open} is open"
        )


def _words(outcome: bool | None) -> str:
    if outcome is None:
        return "its transaction is open"
    return "its transaction is committed" if outcome else "its transaction is aborted"
