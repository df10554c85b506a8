"""The states of a transactional id, and what each event does in each of them.

A cell holds the answer, and the next state if it changes: `ok, PC` leads to PrepareCommit. Columns: no such id, Empty,
Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, named by their initials. A `+` behind the state:
the producer epoch rises. `-`: cannot happen.

| event                                   | none    | E        | O        | PC      | PA      | CC       | CA       |
|-----------------------------------------|---------|----------|----------|---------|---------|----------|----------|
| init of a new producer                  | ok, E   | ok, E+   | wait, PA+| wait    | wait    | ok, E+   | ok, E+   |
| init of the producer itself             | ok, E   | ok, E+   | wait, PA+| wait    | wait    | ok, E+   | ok, E+   |
| init of a producer with an older epoch  | ok, E   | fenced   | fenced   | fenced  | fenced  | fenced   | fenced   |
| init of another producer id             | ok, E   | fenced   | fenced   | fenced  | fenced  | fenced   | fenced   |
| add partitions                          | mapping | ok, O    | ok, O    | wait    | wait    | ok, O    | ok, O    |
| add partitions of an older epoch        | mapping | fenced   | fenced   | fenced  | fenced  | fenced   | fenced   |
| add partitions of another producer id   | mapping | mapping  | mapping  | mapping | mapping | mapping  | mapping  |
| verify a partition that is in it        | mapping | abortable| ok       | wait    | wait    | abortable| abortable|
| verify a partition that is not          | mapping | abortable| abortable| wait    | wait    | abortable| abortable|
| commit, version 1                       | mapping | state    | ok, PC   | wait    | state   | ok       | state    |
| abort, version 1                        | mapping | state    | ok, PA   | state   | wait    | state    | ok       |
| commit, version 2                       | mapping | state    | ok, PC+  | fenced  | fenced  | state    | state    |
| abort, version 2                        | mapping | ok, CA+  | ok, PA+  | fenced  | fenced  | ok, CA+  | ok, CA+  |
| commit again, version 2                 | mapping | fenced   | fenced   | wait    | state   | ok       | state    |
| abort again, version 2                  | mapping | fenced   | fenced   | state   | wait    | state    | ok       |
| end of an older epoch                   | mapping | fenced   | fenced   | fenced  | fenced  | fenced   | fenced   |
| all markers are committed               | -       | -        | -        | ok, CC  | ok, CA  | -        | -        |
| the transaction times out               | -       | -        | ok, PA+  | -       | -       | -        | -        |
| the id expires                          | -       | ok, none | -        | -       | -       | ok, none | ok, none |

`wait` is CONCURRENT_TRANSACTIONS, unless the markers are committed soon (coordinator.py). `fenced` is PRODUCER_FENCED,
`mapping` INVALID_PRODUCER_ID_MAPPING, `state` INVALID_TXN_STATE, `abortable` TRANSACTION_ABORTABLE. Version 2 is
`transaction.version` 2 (KIP-890): each end of a transaction raises the epoch, so that what a producer sent before
cannot be taken for a part of the next transaction. "Again" is a retry, with the epoch from before that.
`tests/broker/transactions/test_states.py` reads this table.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The values are those of Kafka's records."""

    EMPTY = 0
    """A producer has the id, and no transaction was begun under its present epoch."""
    ONGOING = 1
    """A transaction is open: some partition is in it."""
    PREPARE_COMMIT = 2
    """It is decided that it is committed. Some marker may be missing."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are committed."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Not used. Kafka has it in memory only."""
    PREPARE_EPOCH_FENCE = 7
    """Not used. Kafka has it in memory only."""

    @property
    def label(self) -> str:
        """The name that clients are shown."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
