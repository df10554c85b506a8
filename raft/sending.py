"""Leader: what is sent to whom and when: ranges, who may linger, probing, installs."""

from __future__ import annotations

from raft.progress import Progress, ProgressState
from raft.state import GroupState
from raft.types import NO_TERM, Install, Output, Send


class Sending(GroupState):
    __slots__ = ()

    def _send_to_open(self, out: Output, now: float) -> None:
        """To everybody, whether it lingers or not."""
        self._end_gathering()
        self._send_due(out, now)

    def _end_gathering(self) -> None:
        self._linger_start_before = self._linger_start
        self._linger_start = self.end_index
        self._lingering_bytes = 0

    def _send_due(self, out: Output, now: float) -> None:
        for progress in self._followers:
            if self._is_due(progress):
                self._send_range(out, progress, now)

    def _is_due(self, progress: Progress) -> bool:
        """The follower lacks something, may be sent it, and it need not gather any longer."""
        return progress.is_open and progress.next_index < (
            self._linger_start if progress.lingers else self.end_index
        )

    def _may_gather(self, size_bytes: int) -> bool:
        """Choose who lingers. Small appends are sent at once to as many followers as an answer waits for, and to
        the others in larger ranges: what is durable before it is acknowledged is the same, and the last copy costs
        much less. Large ones gain nothing by that, and are dear to keep meanwhile. False: this append goes to
        everybody at once."""
        linger_bytes = self.timing.linger_bytes
        self._lingering_bytes += size_bytes
        if self._lingering_bytes >= linger_bytes or size_bytes >= linger_bytes // 4:
            return False
        needed = max(len(self.configuration.voters) // 2 + 1, self.min_durable) - self._self_counts
        prompt = [
            progress
            for progress in self._voting_followers
            if progress.state is ProgressState.REPLICATE and progress.is_open and not progress.lingers
        ]
        if len(prompt) < needed:
            # One of them is lost or slow. All take part again; who lags when the next append comes may linger.
            for progress in self._voting_followers:
                progress.lingers = False
            return False
        if len(prompt) > needed:
            prompt.sort(key=lambda progress: progress.match_end)
            for progress in prompt[: len(prompt) - needed]:
                progress.lingers = True
        return True

    def _overtaken_by(self, lingering: Progress) -> None:
        """It was sent its entries later and has them earlier: it takes the place of one that is slower by a whole
        gathering. (By less they would change places at every other answer, and both would be sent small ranges.)"""
        for progress in self._voting_followers:
            if not progress.lingers and progress.match_end < min(
                self._linger_start_before, lingering.match_end
            ):
                progress.lingers, lingering.lingers = True, False
                return

    def _send_range(self, out: Output, progress: Progress, now: float) -> None:
        if progress.next_index < self._start_index:
            self._order_install(out, progress, now)
            return
        out.sends.append(self._range(progress))
        self._await_answer(now)

    def _await_answer(self, now: float) -> None:
        if self.deadline is None:
            self.deadline = now + self.timing.resend_timeout_s

    def _range(self, progress: Progress) -> Send:
        """The next range: up to the log end, or up to and including the next row."""
        start = progress.next_index
        rows = self._rows
        if start > rows.last_index:
            return Send(progress.replica, start, self.end_index, rows.last_term if start else NO_TERM)
        barrier = rows.next_index(start)
        assert barrier is not None
        return Send(progress.replica, start, barrier + 1, rows.term_before(start))

    def _empty_range(self, progress: Progress, end: int) -> Send:
        return Send(progress.replica, end, end, self._rows.term_before(end))

    def _order_install(self, out: Output, progress: Progress, now: float) -> None:
        progress.reset(self._start_index)
        progress.state = ProgressState.INSTALL
        progress.is_open = False
        progress.awaiting = True
        progress.installing_since = now
        begin = self.install_offset
        out.installs.append(Install(progress.replica, begin, self._rows.rows_below_offset(begin)))
        self._await_answer(now)

    def _resume_index(self, progress: Progress) -> int:
        """Where to look for the common point again: known matches stay known (they are durable there)."""
        return max(progress.match_end or self._own_row_index, self._start_index)

    def _probe_again(self, out: Output, progress: Progress, now: float) -> None:
        progress.reset(self._resume_index(progress))
        if progress.is_open:
            self._send_range(out, progress, now)

    def _leave_probe(self, out: Output, progress: Progress, match_end: int, now: float) -> bool:
        """An acceptance outside REPLICATE: may ranges follow from match_end?

        During an install nothing is acknowledged, so this is a late answer. Below the log start nothing can be sent.
        Either the log start has risen since the question, which is put anew, or the follower accepted a higher range
        that is not durable there yet: its next answer counts.
        """
        if progress.state is ProgressState.INSTALL:
            return False
        if max(match_end, progress.match_end) < self._start_index:
            progress.overdue = False
            if progress.next_index < self._start_index:
                self._probe_again(out, progress, now)
            return False
        return True

    def _refused(
        self, out: Output, progress: Progress, start: int, hint_index: int, hint_term: int, now: float
    ) -> None:
        """The follower refused the range that begins at `start`."""
        if progress.state is ProgressState.INSTALL or start <= progress.match_end:
            return  # a late answer: below match_end the logs are known to agree
        if progress.state is ProgressState.REPLICATE:
            self._probe_again(out, progress, now)
            return
        if start != progress.next_index:
            return  # a late answer to an earlier probe
        common_end = self._rows.common_end(min(hint_index, start - 1), hint_term)
        progress.reset(max(common_end, progress.match_end))
        if not progress.is_open:
            return
        is_known_to_differ = common_end == hint_index and self._rows.term_before(common_end) != hint_term
        if is_known_to_differ and self._start_index <= progress.next_index == common_end:
            # A question only: the follower's log may have a boundary here where this one is inside a batch.
            out.sends.append(self._empty_range(progress, common_end))
            self._await_answer(now)
        else:
            self._send_range(out, progress, now)

    def _lacks_news(self, progress: Progress) -> bool:
        news = progress.commit_sent < self.commit_end or progress.log_start < self.watermarks.log_start
        return news and progress.reachable and progress.state is ProgressState.REPLICATE
