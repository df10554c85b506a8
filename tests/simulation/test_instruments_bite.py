"""The instruments measure: the real journal keeps its votes on an honest disk, and is caught on a lying one."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from storage.disk import DiskError
from storage.errors import JournalCorruptError
from storage.journal import Journal
from storage.journal_records import Vote
from storage.log_types import GroupKey
from tests.simulator.disk import DiskFaults, MemoryDisk
from tests.simulator.loop import SimulatedLoop, new_loop

GROUPS = [GroupKey(UUID(int=n + 1), 0) for n in range(3)]
LIVES = 6


class VoteLostError(AssertionError):
    """A term that a finished flush had covered is not there after the crash."""


class _Voter:
    """Writes terms to the journal, now and then waits for a flush, and remembers what it was promised."""

    def __init__(self, seed: int, faults: DiskFaults) -> None:
        self._rng = random.Random(seed)
        self.loop: SimulatedLoop = new_loop()
        self._disk = MemoryDisk("/n1", self.loop, random.Random(seed), faults)
        self._promised = dict.fromkeys(GROUPS, 0)

    def live_and_crash(self) -> None:
        journal = Journal.open(self._disk)
        terms = {}
        for group in GROUPS:
            state = journal.state(group)
            terms[group] = state.term if state is not None else 0
            if terms[group] < self._promised[group]:
                raise VoteLostError(f"term {terms[group]} after {self._promised[group]} was durable")
        for _ in range(self._rng.randrange(1, 40)):
            group = self._rng.choice(GROUPS)
            terms[group] += 1
            journal.append(Vote(group, terms[group], None))
            if self._rng.random() < 0.4 and not self._flush(journal, terms):
                break
        self._disk.crash()

    def _flush(self, journal: Journal, terms: dict[GroupKey, int]) -> bool:
        """False: power is lost before the answer comes."""
        covered = dict(terms)
        ticket = journal.begin_flush()
        answers: list[DiskError | None] = []
        self._disk.flush([ticket.file], answers.append)
        if self._rng.random() < 0.2:
            return False
        self.loop.run_until(lambda: bool(answers), limit_s=1)
        journal.finish_flush(ticket)
        self._promised = covered
        return True


def _run(seed: int, faults: DiskFaults) -> None:
    voter = _Voter(seed, faults)
    try:
        for _ in range(LIVES):
            voter.live_and_crash()
    finally:
        voter.loop.close()


@pytest.mark.parametrize("seed", range(100))
def test_the_journal_keeps_every_promised_vote_through_crashes(seed: int) -> None:
    _run(seed, DiskFaults())


@pytest.mark.parametrize("fault", ["lying_flush", "done_before_durable"])
def test_a_journal_without_flush_before_the_answer_is_caught(fault: str) -> None:
    for seed in range(20):
        try:
            _run(seed, DiskFaults(**{fault: True}))
        except (VoteLostError, JournalCorruptError):
            return
    pytest.fail("twenty seeds, and nobody noticed")
