"""Which batches hold the data of an aborted transaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from protocol.records.batch import BatchHeader
from storage.aborted_index import AbortedTransaction


class AbortedData:
    """The aborted transactions of a part of a log, for look-ups by batch.

    It has to know every aborted transaction with a batch in that part, also one that begins below it or whose marker
    lies above it (`AbortedTransactions.overlapping` gives these).
    """

    #: Invariant: the transactions of one producer do not overlap, and their markers rise.
    _of_producer: dict[int, list[AbortedTransaction]]

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._of_producer = {}
        for aborted in sorted(transactions, key=_marker_offset):
            self._of_producer.setdefault(aborted.producer_id, []).append(aborted)

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch is data of an aborted transaction.

        A batch without the transactional bit is none: its transaction was committed and compaction has cleared the
        bit, or it never was in one.
        """
        if not header.is_transactional or header.is_control:
            return False
        transactions = self._of_producer.get(header.producer_id)
        if transactions is None:
            return False
        at = bisect_left(transactions, header.base_offset, key=_marker_offset)
        return at < len(transactions) and transactions[at].first_offset <= header.base_offset


def _marker_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset
