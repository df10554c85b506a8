"""Flush rounds: many appends, one flush (architecture.md section 3).

A round makes the journal and every dirty log durable. There is one round at a time. When it is over, the logs and the
journal are told (`finish_flush`), and one call-back per log tells their owner. The next round starts at once if
anything became dirty meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from storage.disk import Disk, DiskError, DiskFullError, File
from storage.durations import Durations
from storage.journal import Journal, JournalTicket
from storage.journal_records import Flushed
from storage.log import Log
from storage.log_types import NOTHING_FLUSHED, FlushedEnd, FlushTicket

#: A round that waits for room on the disk is tried again after this time.
FULL_RETRY_S = 0.1
#: How often ends of finished rounds are recorded (replication.md section 2).
RECORD_INTERVAL_S = 0.1


class FlushRounds:
    """The flush rounds of one data directory.

    - `now` is the event loop's clock, in seconds. `steady_s` is one with microseconds, by default the same.
    - `on_durable(log, end)` is called for every log of a finished round.
    - `on_full(error)` is called when a round cannot begin because the disk has no room for the journal. Everything
      waits, and nothing is acknowledged, until it has: `start` tries again.
    - `on_fatal(error)` is called once, when the disk failed. Nothing of that round and nothing after it is durable, and
      the node must stop.
    - `prepare_reply(log, end)` is called for every log of a round that the loop waits for, before it waits. What it
      returns sends the reply. It is called as soon as the round is durable, before any bookkeeping.
    """

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        *,
        now: Callable[[], float],
        on_durable: Callable[[Log, FlushedEnd], None],
        on_full: Callable[[DiskFullError], None],
        on_fatal: Callable[[DiskError], None],
        prepare_reply: Callable[[Log, FlushedEnd], Callable[[], None] | None] = lambda log, end: None,
        record_interval_s: float = RECORD_INTERVAL_S,
        steady_s: Callable[[], float] | None = None,
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._now = now
        self._steady_s = steady_s or now
        #: Of the rounds that have ended well.
        self.durations = Durations()
        self._begun_s = 0.0
        self._on_durable = on_durable
        self._on_full = on_full
        self._on_fatal = on_fatal
        self._prepare_reply = prepare_reply
        #: What sends the prepared replies of the round in flight.
        self._prepared: list[Callable[[], None]] = []
        self._record_interval_s = record_interval_s
        #: A dict as an ordered set: a round flushes logs in the order in which they became dirty.
        self._dirty: dict[Log, None] = {}
        #: Whether all that was marked dirty since the last round allows the loop to wait.
        self._may_block = True
        #: Logs whose durable end is not in the journal yet.
        self._unrecorded: dict[Log, None] = {}
        self._recorded_at_s = now()
        self._is_in_flight = False
        #: `start` is running: a round that the disk finishes at once must not begin the next one inside it.
        self._is_starting = False
        #: Logs of the round in flight whose result is still wanted.
        self._in_flight: dict[Log, FlushTicket] = {}
        self._has_failed = False
        #: No round begins before this time.
        self._not_before_s = float("-inf")
        #: (journal sequence, call-back), sequences rising.
        self._waiting: deque[tuple[int, Callable[[], object]]] = deque()

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight, dirty, or waiting. The journal may still lack durable ends."""
        return not (self._is_in_flight or self._dirty or self._waiting or self._journal.is_dirty)

    @property
    def is_waiting_for_room(self) -> bool:
        """The journal did not fit a moment ago, and nothing becomes durable."""
        return self._now() < self._not_before_s

    def mark_dirty(self, log: Log, *, may_block: bool = True) -> None:
        """The log grew; the next round takes it. `may_block`: as in `Disk.flush`."""
        self._dirty[log] = None
        if not may_block:
            self._may_block = False

    def log_opened(self, log: Log) -> None:
        """A log is in use from now on. Recovery may have made more of it durable than the journal has recorded. That is
        recorded soon, or a later start would take corruption there for a torn write."""
        state = self._journal.state(log.group)
        recorded = None if state is None else state.flushed_end
        if log.flushed_end != (recorded or NOTHING_FLUSHED):
            self._unrecorded[log] = None

    def after_flush(self, callback: Callable[[], object]) -> None:
        """Call back when every journal record appended so far is durable; never before this returns."""
        self._waiting.append((self._journal.last_sequence, callback))

    def discard_log(self, log: Log) -> None:
        """The log is being closed: no later round flushes it, and no call-back names it any more."""
        self._dirty.pop(log, None)
        self._in_flight.pop(log, None)
        self._unrecorded.pop(log, None)

    def truncate(self, log: Log, to_index: int, known_commit: int) -> None:
        """Truncate a log in the order that survives a crash at any step: recorded end, data, lineage."""
        if to_index >= log.end_index:
            return
        state = self._journal.state(log.group)
        recorded = state.flushed_end if state is not None else None
        if recorded is None or recorded.end_index <= to_index:
            lower = recorded or NOTHING_FLUSHED
        else:
            lower = FlushedEnd(to_index, log.lineage.rows_below_index(to_index))
        self._journal.append(Flushed(log.group, lower._replace(is_settled=False)))
        self._journal.flush()
        log.truncate(to_index, known_commit)
        self._unrecorded[log] = None

    def start(self) -> None:
        """Begin a round if none is in flight and anything is dirty. Called once per loop iteration. On a quick disk the
        round may be over when this returns, with its call-backs called."""
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while (
                not (self._is_in_flight or self._has_failed or self.is_waiting_for_room) and self._has_work()
            ):
                self._begin_round()
        finally:
            self._is_starting = False

    def _has_work(self) -> bool:
        if self._unrecorded and self._now() >= self._recorded_at_s + self._record_interval_s:
            self._record_ends()
        return bool(self._dirty or self._waiting or self._journal.is_dirty)

    def _begin_round(self) -> None:
        files: list[File] = []
        journal_ticket: JournalTicket | None = None
        if self._journal.is_dirty:
            try:
                journal_ticket = self._journal.begin_flush()
            except DiskFullError as error:
                # The logs wait with it: what is said when they are durable may be of a term that only the journal has.
                self._not_before_s = self._now() + FULL_RETRY_S
                self._on_full(error)
                return
            except DiskError as error:
                self._fail(error)
                return
            files.append(journal_ticket.file)
        self._in_flight = {log: log.begin_flush() for log in self._dirty}
        self._dirty = {}
        may_block, self._may_block = self._may_block, True
        for ticket in self._in_flight.values():
            files.extend(ticket.files)
        self._is_in_flight = True
        self._begun_s = self._steady_s()
        self._disk.flush(
            files,
            lambda error: self._finish_round(error, journal_ticket),
            may_block=may_block,
            meanwhile=self._prepare_replies,
        )

    def _prepare_replies(self) -> None:
        for log, ticket in self._in_flight.items():
            send = self._prepare_reply(log, ticket.end)
            if send is not None:
                self._prepared.append(send)

    def _fail(self, error: DiskError) -> None:
        self._has_failed = True
        self._on_fatal(error)

    def _record_ends(self) -> None:
        """Put the ends of earlier rounds into the journal: below them, a bad batch is corruption and no torn write."""
        for log in self._unrecorded:
            self._journal.append(Flushed(log.group, log.flushed_end))
        self._unrecorded = {}
        self._recorded_at_s = self._now()

    def record_all(self) -> None:
        """Record every end now and make the journal durable, for a clean shutdown."""
        self._record_ends()
        self._journal.flush()

    def _finish_round(self, error: DiskError | None, journal_ticket: JournalTicket | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self.durations.add(self._steady_s() - self._begun_s)
        prepared, self._prepared = self._prepared, []
        for send in prepared:
            send()
        if journal_ticket is not None:
            self._journal.finish_flush(journal_ticket)
        while self._waiting and self._waiting[0][0] <= self._journal.flushed_sequence:
            self._waiting.popleft()[1]()
        while self._in_flight:
            log = next(iter(self._in_flight))
            ticket = self._in_flight.pop(log)
            before = log.flushed_end
            log.finish_flush(ticket)
            if log.flushed_end != before:
                self._unrecorded[log] = None
                self._on_durable(log, log.flushed_end)
        # Not before: a call-back that calls `start` must not begin a round in the middle of this one.
        self._is_in_flight = False
        self.start()
