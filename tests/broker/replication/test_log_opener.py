"""Which logs are begun with the founding configuration."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from broker.replication import wire
from broker.replication.log_opener import LogOpener
from broker.replication.watermarks.bounds import DurableBounds
from raft.types import FOUNDING_TERM, Configuration, HardState, ReplicaId, RowKind
from storage.directory import list_partitions
from storage.journal import Journal
from storage.journal_records import Vote, VotedFor
from storage.log import Log
from storage.log_creation import create_log
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.storage.helpers import GROUP, SMALL, InlineDisk, StopError, StoppingMemoryDisk, fresh_disk

OWN = ReplicaId(1, b"d" * 16, 0)
FOUNDING = Configuration((OWN, ReplicaId(2, b"e" * 16, 0)), ())


def rows_after_opening(disk: InlineDisk, *votes: Vote) -> tuple[list[int], HardState]:
    """Terms of the rows, and the hard state, of a log whose creation was interrupted after these records."""
    journal = Journal.open(disk)
    if votes:
        create_log(disk, f"{disk.root}/topic-0", GROUP, SMALL).close(is_clean=False)
    for vote in votes:
        journal.append(vote)
    opener = LogOpener(
        disk, journal, DurableBounds(journal), OWN.node_id, OWN.directory_id, is_clean_start=False
    )
    opened = opener.open(GROUP, "topic", SMALL, FOUNDING, is_only_copy=False)
    assert opened is not None
    return [row.term for row in opened[0].lineage.rows], opener.identity(GROUP)[1]


def test_a_new_log_is_founded_below_the_term_of_the_first_election() -> None:
    with fresh_disk() as disk:
        assert rows_after_opening(disk) == ([FOUNDING_TERM], HardState(FOUNDING_TERM, None))


@pytest.mark.parametrize("term", [FOUNDING_TERM, 0])
def test_a_creation_that_was_interrupted_goes_on(term: int) -> None:
    """Term 0: in a directory from before elections began at 0."""
    with fresh_disk() as disk:
        assert rows_after_opening(disk, Vote(GROUP, term, None)) == ([FOUNDING_TERM], HardState(term, None))


@pytest.mark.parametrize("vote", [Vote(GROUP, 0, VotedFor(2, b"e" * 16, 0)), Vote(GROUP, 1, None)])
def test_who_was_in_an_election_is_not_founded_again(vote: Vote) -> None:
    with fresh_disk() as disk:
        assert rows_after_opening(disk, vote)[0] == []


def opened_by_a_start(disk: MemoryDisk) -> tuple[Log, ReplicaId]:
    """The only log of a disk whose node was killed."""
    list_partitions(disk)
    journal = Journal.open(disk)
    opener = LogOpener(
        disk, journal, DurableBounds(journal), OWN.node_id, OWN.directory_id, is_clean_start=False
    )
    opened = opener.open(GROUP, "topic", SMALL, FOUNDING, is_only_copy=False)
    assert opened is not None
    return opened[0], opener.identity(GROUP)[0]


def test_what_a_log_that_is_begun_anew_acknowledges_stays_wherever_its_creation_died() -> None:
    """Its folder is gone. The process dies while it makes a new one, the next one finds it and writes, and power is
    lost."""
    step, is_finished = 0, False
    while not is_finished:
        loop = new_loop()
        disk = StoppingMemoryDisk("/n1", loop, random.Random(step))
        journal = Journal.open(disk)
        journal.append(Vote(GROUP, 1, None))
        journal.flush()
        disk.calls_left = step
        with suppress(StopError):
            opened_by_a_start(disk)
            is_finished = True
        disk.calls_left = None
        log, identity = opened_by_a_start(disk)
        log.append_row(2, RowKind.CONFIGURATION, wire.encode_configuration(FOUNDING, None))
        log.flush()
        disk.crash()
        again, same = opened_by_a_start(disk)
        assert (same, again.end_index) == (identity, log.end_index), step
        loop.close()
        step += 1
    assert step > 10
