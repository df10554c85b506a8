from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage.disk import DiskError, DiskFailedError, File
from storage.group_commit import FlushRounds
from storage.journal import Journal
from storage.journal_records import Flushed, Vote
from storage.log import Log
from storage.log_types import FlushedEnd
from tests.storage.helpers import GROUP, ROW_KIND, InlineDisk, append, new_log, reopen


class World:
    """Rounds over one log, with a clock in the test's hand."""

    def __init__(self, disk: InlineDisk) -> None:
        self.disk = disk
        self.journal = Journal.open(self.disk)
        self.log = new_log(self.disk)
        self.now_s = 0.0
        self.durable: list[FlushedEnd] = []
        self.fatal: list[DiskError] = []
        self.rounds = FlushRounds(
            self.disk,
            self.journal,
            now=lambda: self.now_s,
            on_durable=self._on_durable,
            on_full=self.fatal.append,
            on_fatal=self.fatal.append,
        )

    def _on_durable(self, log: Log, end: FlushedEnd) -> None:
        assert log is self.log
        self.durable.append(end)

    def append(self) -> FlushedEnd:
        append(self.log)
        self.rounds.mark_dirty(self.log)
        return self.log.end

    def recorded(self) -> FlushedEnd | None:
        state = self.journal.state(GROUP)
        return state.flushed_end if state is not None else None


@pytest.fixture
def world(disk: InlineDisk) -> World:
    return World(disk)


def test_one_round_at_a_time_and_the_next_takes_all_that_came_meanwhile(world: World) -> None:
    first = world.append()
    world.rounds.start()
    world.append()
    world.rounds.start()
    last = world.append()
    assert len(world.disk.submitted) == 1
    world.disk.complete()
    assert world.durable == [first]
    assert len(world.disk.submitted) == 1
    world.disk.complete()
    assert world.durable == [first, last]
    assert not world.disk.submitted
    assert world.rounds.is_idle


class QuickDisk(InlineDisk):
    """Every flush is over when the call returns."""

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        assert meanwhile is not None
        meanwhile()
        super().flush(files, done)
        self.complete()


def test_on_a_quick_disk_what_a_round_brings_about_goes_into_the_next(tmp_path: Path) -> None:
    """A thousand rounds, each of which makes the log dirty again, are one after the other and not one in the other."""
    world = World(QuickDisk(str(tmp_path)))
    ends = [world.append()]

    def on_durable(log: Log, end: FlushedEnd) -> None:
        assert not world.rounds.is_idle
        world.durable.append(end)
        if len(ends) < 1000:
            ends.append(world.append())
            world.rounds.start()
            assert world.durable[-1] == end

    world.rounds._on_durable = on_durable
    world.rounds.start()
    assert world.durable == ends
    assert world.rounds.is_idle
    world.disk.close()


class DiskAtWork(QuickDisk):
    """Tells what was called when, and fails when it is told to."""

    def __init__(self, root: str, steps: list[str]) -> None:
        super().__init__(root)
        self.steps = steps
        self.error: DiskError | None = None

    def complete(self, error: DiskError | None = None) -> None:
        self.steps.append("flushed")
        super().complete(self.error)


def test_a_prepared_reply_is_sent_first_after_a_flush_that_was_waited_for(tmp_path: Path) -> None:
    steps: list[str] = []
    disk = DiskAtWork(str(tmp_path), steps)
    world = World(disk)

    def prepare_reply(log: Log, end: FlushedEnd) -> Callable[[], None]:
        assert (log, end) == (world.log, world.log.end)
        assert log.flushed_end != end
        steps.append("prepared")
        return lambda: steps.append("sent")

    world.rounds._prepare_reply = prepare_reply
    world.rounds._on_durable = lambda log, end: steps.append("durable")
    world.append()
    world.rounds.start()
    assert steps == ["prepared", "flushed", "sent", "durable"]

    steps.clear()
    disk.error = DiskFailedError("it broke")
    world.append()
    world.rounds.start()
    assert steps == ["prepared", "flushed"]
    assert world.fatal == [disk.error]
    disk.close()


def test_nothing_is_durable_before_the_flush_is_done(world: World) -> None:
    called: list[int] = []
    world.journal.append(Vote(GROUP, 3, None))
    world.rounds.after_flush(lambda: called.append(1))
    world.rounds.start()
    assert called == []
    files, _ = world.disk.submitted[0]
    assert [Path(file.path).name for file in files] == ["journal"]
    world.rounds.after_flush(lambda: called.append(2))
    world.journal.append(Vote(GROUP, 4, None))
    world.rounds.after_flush(lambda: called.append(3))
    world.disk.complete()
    assert called == [1, 2], "the second depends on nothing newer than the first"
    world.disk.complete()
    assert called == [1, 2, 3]


def test_a_wait_without_new_records_still_calls_back(world: World) -> None:
    called: list[int] = []
    world.rounds.after_flush(lambda: called.append(1))
    assert called == []
    world.rounds.start()
    world.disk.complete()
    assert called == [1]


def test_a_failed_flush_is_fatal_and_acknowledges_nothing(world: World) -> None:
    world.append()
    world.rounds.after_flush(lambda: pytest.fail("called back"))
    world.rounds.start()
    world.disk.complete(DiskFailedError("EIO"))
    assert (world.durable, len(world.fatal)) == ([], 1)
    world.append()
    world.rounds.start()
    assert not world.disk.submitted


def test_ends_of_earlier_rounds_are_recorded_at_most_every_interval(world: World) -> None:
    end = world.append()
    world.rounds.start()
    world.disk.complete()
    assert [world.recorded()] == [None]
    world.now_s = 0.05
    world.rounds.start()
    assert not world.disk.submitted
    world.now_s = 0.1
    world.rounds.start()
    assert world.recorded() == end
    world.disk.complete()
    world.append()
    world.now_s = 0.3
    world.rounds.start()
    assert world.recorded() == end, "a round never records its own end"


def test_a_truncation_lowers_the_recorded_end_first_and_voids_the_round_in_flight(world: World) -> None:
    kept = world.append()
    dropped = world.append()
    world.log.flush()
    world.journal.append(Flushed(GROUP, dropped))
    world.append()
    world.rounds.start()
    world.rounds.truncate(world.log, kept.end_index, kept.end_index)
    assert world.recorded() == kept._replace(is_settled=False)
    assert not world.journal.is_dirty
    world.log.append_row(2, ROW_KIND, b"")
    world.rounds.mark_dirty(world.log)
    world.disk.complete()
    assert world.durable == []
    assert world.log.flushed_end == kept
    world.disk.complete()
    assert world.durable == [world.log.end]


def test_a_discarded_log_is_not_heard_of_again(world: World) -> None:
    world.append()
    world.rounds.start()
    world.append()
    world.rounds.discard_log(world.log)
    world.disk.complete()
    assert world.durable == []
    assert world.rounds.is_idle


def test_what_recovery_found_is_recorded_although_nothing_is_written(world: World) -> None:
    """Also where the journal says that end, but of a log that was being cut."""
    append(world.log)
    log = reopen(world.disk)
    end = log.flushed_end
    for recorded in (None, end._replace(is_settled=False)):
        if recorded is not None:
            world.journal.append(Flushed(GROUP, recorded))
        world.rounds.log_opened(log)
        world.now_s += 0.1
        world.rounds.start()
        assert world.recorded() == end
        world.disk.complete()
    world.rounds.log_opened(log)
    world.now_s += 0.1
    world.rounds.start()
    assert world.rounds.is_idle, "it is known already"


def test_record_all_makes_the_last_ends_durable(world: World) -> None:
    end = world.append()
    world.rounds.start()
    world.disk.complete()
    world.rounds.record_all()
    state = Journal.open(world.disk).state(GROUP)
    assert state is not None and state.flushed_end == end
