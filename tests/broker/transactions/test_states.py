"""The table of broker.transactions.states, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.transactions import states
from broker.transactions.metadata import (
    EPOCH_BUMP_VERSION,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
    new_metadata,
)
from broker.transactions.states import TransactionState
from protocol.errors import ErrorCode, KafkaError

PRODUCER_ID, EPOCH, NEW_PRODUCER_ID = 1000, 5, 2000
TIMEOUT_MS, BEGAN_MS, NOW_MS, EXPIRATION_MS = 60_000, 1_000_000, 2_000_000, 500_000
IN_IT, NOT_IN_IT = TopicPartition("foo", 0), TopicPartition("foo", 1)

#: The states by their initials, as in the table.
INITIALS = {
    "E": TransactionState.EMPTY,
    "O": TransactionState.ONGOING,
    "PC": TransactionState.PREPARE_COMMIT,
    "PA": TransactionState.PREPARE_ABORT,
    "CC": TransactionState.COMPLETE_COMMIT,
    "CA": TransactionState.COMPLETE_ABORT,
}
ERRORS = {
    "wait": ErrorCode.CONCURRENT_TRANSACTIONS,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "mapping": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "state": ErrorCode.INVALID_TXN_STATE,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
}


def _own(of: TransactionMetadata, epochs_back: int = 0) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(of.producer_id, of.epoch - epochs_back)


def _other(of: TransactionMetadata) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(of.producer_id + 1, of.epoch)


def _init(expected: Callable[[TransactionMetadata], ProducerIdAndEpoch | None]) -> _Event:
    return lambda of: of.init_producer(expected(of), TIMEOUT_MS, NEW_PRODUCER_ID, NOW_MS)


def _add(producer: Callable[[TransactionMetadata], ProducerIdAndEpoch]) -> _Event:
    return lambda of: of.add_partitions(producer(of), [NOT_IN_IT], 0, NOW_MS)


def _verify(partition: TopicPartition) -> _Event:
    def verify(of: TransactionMetadata) -> TransactionMetadata:
        of.verify_partition(_own(of), partition)
        return of

    return verify


def _end(*, is_commit: bool, version: int, epochs_back: int = 0) -> _Event:
    return lambda of: of.end(
        _own(of, epochs_back),
        is_commit=is_commit,
        client_version=version,
        new_producer_id=NEW_PRODUCER_ID,
        now_ms=NOW_MS,
    )


_Event = Callable[[TransactionMetadata], TransactionMetadata]

EVENTS: dict[str, _Event] = {
    "init of a new producer": _init(lambda of: None),
    "init of the producer itself": _init(_own),
    "init of a producer with an older epoch": _init(lambda of: _own(of, 2)),
    "init of another producer id": _init(_other),
    "add partitions": _add(_own),
    "add partitions of an older epoch": _add(lambda of: _own(of, 1)),
    "add partitions of another producer id": _add(_other),
    "verify a partition that is in it": _verify(IN_IT),
    "verify a partition that is not": _verify(NOT_IN_IT),
    "commit, version 1": _end(is_commit=True, version=1),
    "abort, version 1": _end(is_commit=False, version=1),
    "commit, version 2": _end(is_commit=True, version=2),
    "abort, version 2": _end(is_commit=False, version=2),
    "commit again, version 2": _end(is_commit=True, version=2, epochs_back=1),
    "abort again, version 2": _end(is_commit=False, version=2, epochs_back=1),
    "end of an older epoch": _end(is_commit=True, version=2, epochs_back=2),
    "all markers are committed": lambda of: of.complete(NOW_MS),
    "the transaction times out": lambda of: of.time_out(NOW_MS),
}


def _in_state(initials: str) -> TransactionMetadata:
    """A transactional id in this state, after a transaction that a client of version 2 wrote."""
    empty = replace(new_metadata("id", PRODUCER_ID, TIMEOUT_MS, BEGAN_MS), epoch=EPOCH)
    if initials == "E":
        return empty
    ongoing = empty.add_partitions(empty.producer, [IN_IT], EPOCH_BUMP_VERSION, BEGAN_MS)
    if initials == "O":
        return ongoing
    prepared = ongoing.end(
        ongoing.producer,
        is_commit=initials.endswith("C"),
        client_version=EPOCH_BUMP_VERSION,
        new_producer_id=NEW_PRODUCER_ID,
        now_ms=BEGAN_MS,
    )
    return prepared if initials[0] == "P" else prepared.complete(BEGAN_MS)


def _rows() -> list[tuple[str, str, str]]:
    """(event, initials of the state or "none", cell)."""
    assert states.__doc__ is not None
    lines = [line for line in states.__doc__.splitlines() if line.startswith("| ")]
    header, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        (event, state, cell) for event, *cells in rows for state, cell in zip(header[1:], cells, strict=True)
    ]


CELLS = _rows()


def test_the_table_names_every_event() -> None:
    assert {event for event, _, _ in CELLS} == {*EVENTS, "the id expires"}
    assert {state for _, state, _ in CELLS} == {"none", *INITIALS}


@pytest.mark.parametrize(
    ("event", "state", "cell"),
    [row for row in CELLS if row[1] != "none" and row[2] != "-" and row[0] != "the id expires"],
)
def test_a_cell(event: str, state: str, cell: str) -> None:
    before = _in_state(state)
    answer, _, change = cell.partition(", ")
    if answer == "ok" or change:
        after = EVENTS[event](before)
        assert after.state is INITIALS[change.rstrip("+") or state]
        assert after.epoch - before.epoch == change.endswith("+")
    else:
        with pytest.raises(KafkaError) as raised:
            EVENTS[event](before)
        assert raised.value.code == ERRORS[answer]


@pytest.mark.parametrize(("event", "state"), [(e, s) for e, s, cell in CELLS if cell == "-" and s != "none"])
def test_what_cannot_happen_is_an_assertion(event: str, state: str) -> None:
    if event == "the id expires":
        assert not _in_state(state).is_expired(EXPIRATION_MS, NOW_MS)
    else:
        with pytest.raises((AssertionError, KeyError)):
            EVENTS[event](_in_state(state))


@pytest.mark.parametrize("state", [s for e, s, cell in CELLS if e == "the id expires" and cell != "-"])
def test_an_id_expires(state: str) -> None:
    assert _in_state(state).is_expired(EXPIRATION_MS, NOW_MS)
    assert not _in_state(state).is_expired(NOW_MS - BEGAN_MS + 1, NOW_MS)
