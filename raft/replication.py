"""Leader: what is sent to whom, and when: ranges, append batching, probes, snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raft.progress import Progress, ProgressState
from raft.types import NO_TERM, AppendRejection, InstallSnapshot, Output, ReplicaId, Send

if TYPE_CHECKING:
    from raft.state import GroupState


class Replication:
    """Replication from one leader to its followers. It begins with the leader's first row, at the end of the log.

    Append batching: small appends go at once only to as many followers as an answer to a client waits for. The other
    ones are *deferred*: their appends are batched (raft/README.md).
    """

    __slots__ = (
        "_batch_start_before",
        "_batched_bytes",
        "_own_row_index",
        "_state",
        "batch_start",
        "counts_self",
        "followers",
        "progress",
        "voting_followers",
    )

    def __init__(self, state: GroupState, own_row_index: int) -> None:
        self._state = state
        self._own_row_index = own_row_index
        self.progress: dict[ReplicaId, Progress] = {}
        #: Members of the newest or the last committed configuration, but for this replica. Values of progress.
        self.followers: list[Progress] = []
        #: The ones that are voters of the newest configuration.
        self.voting_followers: list[Progress] = []
        #: This replica is one, too: what is durable here counts.
        self.counts_self = False
        #: Entries from here on, _batched_bytes of them, wait for the deferred followers. At most the log end.
        self.batch_start = own_row_index
        #: Where it was until the last batch was sent.
        self._batch_start_before = own_row_index
        self._batched_bytes = 0

    # ------------------------------------------------------------------ followers

    def set_members(self, members: Iterable[ReplicaId], now: float) -> None:
        """Follow exactly these, and this replica itself not."""
        state = self._state
        wanted = dict.fromkeys(members)
        wanted.pop(state.self_id, None)
        for replica in [replica for replica in self.progress if replica not in wanted]:
            del self.progress[replica]
        start_index = max(self._own_row_index, state.start_index)
        for replica in wanted:
            if replica not in self.progress:
                reachable = replica.node_id not in state.unreachable
                self.progress[replica] = Progress(
                    replica, start_index, state.end_index, reachable, state.timing, now
                )
        self.followers = list(self.progress.values())
        voters = state.configuration.voters
        self.voting_followers = [progress for progress in self.followers if progress.replica in voters]
        self.counts_self = state.self_id in voters

    def progress_of(self, replica: ReplicaId) -> Progress | None:
        return self.progress.get(replica)

    def link_lost(self, node_id: int) -> None:
        """The ranges on their way to this node may be lost."""
        for progress in self.followers:
            if progress.replica.node_id == node_id:
                progress.reachable = False
                progress.reset(self._resume_index(progress))

    def link_opened(self, out: Output, node_id: int, now: float) -> None:
        for progress in self.followers:
            if progress.replica.node_id == node_id:
                progress.reachable = True
                self.probe_again(out, progress, now)

    def record_caught_up(self, now: float) -> None:
        """Call this before the log grows: a follower that holds all of it was caught up until now, also after a
        pause."""
        end_index = self._state.end_index
        for progress in self.followers:
            if progress.match_end == end_index and progress.state is ProgressState.REPLICATE:
                progress.caught_up_at = now

    # ------------------------------------------------------------------ append batching

    def send_appended(self, out: Output, size_bytes: int, now: float) -> None:
        """The log has grown by size_bytes."""
        if not self._may_defer(size_bytes):
            self._end_batch()
        self._send_due(out, now)

    def send_to_all(self, out: Output, now: float) -> None:
        """To every follower that lacks something, deferred or not."""
        self._end_batch()
        self._send_due(out, now)

    def truncate_batch(self, end_index: int) -> None:
        """The last append could not be written: the log still ends at end_index."""
        self.batch_start = min(self.batch_start, end_index)

    def _end_batch(self) -> None:
        self._batch_start_before = self.batch_start
        self.batch_start = self._state.end_index
        self._batched_bytes = 0

    def _may_defer(self, size_bytes: int) -> bool:
        """Choose the deferred followers. Small appends go at once to as many followers as an acknowledgement waits for,
        and to the others in larger ranges. That changes nothing about what is durable before it is acknowledged, and
        makes the last copy much cheaper. Large appends gain nothing by it. False: send this append to all followers at
        once."""
        state = self._state
        batch_bytes = state.timing.append_batch_bytes
        self._batched_bytes += size_bytes
        if self._batched_bytes >= batch_bytes or size_bytes >= batch_bytes // 4:
            return False
        needed = max(len(state.configuration.voters) // 2 + 1, state.min_durable) - self.counts_self
        prompt = [
            progress
            for progress in self.voting_followers
            if progress.state is ProgressState.REPLICATE and progress.is_open and not progress.is_deferred
        ]
        if len(prompt) < needed:
            # A prompt follower is lost or slow. None is deferred now; the next append chooses again, by their lag.
            for progress in self.voting_followers:
                progress.is_deferred = False
            return False
        if len(prompt) > needed:
            prompt.sort(key=lambda progress: progress.match_end)
            for progress in prompt[: len(prompt) - needed]:
                progress.is_deferred = True
        return True

    def swap_with_slower(self, deferred: Progress) -> None:
        """A deferred follower has more than a prompt one: they change places if the prompt one is slower by a whole
        batch. (With a smaller difference they would change places at every other answer, and both would get small
        ranges.)"""
        for progress in self.voting_followers:
            if not progress.is_deferred and progress.match_end < min(
                self._batch_start_before, deferred.match_end
            ):
                progress.is_deferred, deferred.is_deferred = True, False
                return

    # ------------------------------------------------------------------ ranges

    def _send_due(self, out: Output, now: float) -> None:
        for progress in self.followers:
            if self.is_due(progress):
                self.send_range(out, progress, now)

    def is_due(self, progress: Progress) -> bool:
        """The follower lacks entries, may be sent them, and they are not batched any longer."""
        return progress.is_open and progress.next_index < (
            self.batch_start if progress.is_deferred else self._state.end_index
        )

    def send_range(self, out: Output, progress: Progress, now: float) -> None:
        """The next range: up to the log end, or up to and including the next row. If its start is gone, a snapshot."""
        state = self._state
        if progress.next_index < state.start_index:
            self._send_snapshot(out, progress, now)
            return
        out.sends.append(self._next_range(progress))
        if state.deadline is None:
            state.deadline = now + state.timing.resend_timeout_s

    def _next_range(self, progress: Progress) -> Send:
        start_index = progress.next_index
        lineage = self._state.lineage
        if start_index > lineage.last_index:
            prev_term = lineage.last_term if start_index else NO_TERM
            return Send(progress.replica, start_index, self._state.end_index, prev_term)
        barrier = lineage.next_index(start_index)
        assert barrier is not None
        return Send(progress.replica, start_index, barrier + 1, lineage.term_before(start_index))

    def sent(self, to: ReplicaId, actual_end: int, size_bytes: int) -> Send | None:
        """See `Group.sent`."""
        progress = self.progress.get(to)
        if progress is None:
            return None
        state = self._state
        lineage = state.lineage
        ends_with_row = False
        if actual_end <= lineage.last_index + 1 and actual_end > progress.next_index:
            barrier = lineage.next_index(progress.next_index)
            assert barrier is None or actual_end <= barrier + 1, "a range holds a row only as its last entry"
            ends_with_row = barrier == actual_end - 1
        assert actual_end <= state.end_index
        progress.sent(actual_end, size_bytes, ends_with_row)
        progress.commit_sent = state.commit_end
        return self._next_range(progress) if self.is_due(progress) else None

    def send_empty(self, out: Output, progress: Progress, end_index: int) -> None:
        """Send a range without entries: as a probe, or for the commit index."""
        out.sends.append(
            Send(progress.replica, end_index, end_index, self._state.lineage.term_before(end_index))
        )

    def _send_snapshot(self, out: Output, progress: Progress, now: float) -> None:
        state = self._state
        progress.reset(state.start_index)
        progress.state = ProgressState.SNAPSHOT
        progress.is_open = False
        progress.awaiting = True
        progress.snapshot_sent_at = now
        begin = state.install_offset
        out.snapshots.append(InstallSnapshot(progress.replica, begin, state.lineage.rows_below_offset(begin)))
        self._expect_answer(now)

    def _expect_answer(self, now: float) -> None:
        state = self._state
        if state.deadline is None:
            state.deadline = now + state.timing.resend_timeout_s

    # ------------------------------------------------------------------ probes

    def _resume_index(self, progress: Progress) -> int:
        """Where to look for the common point again: known matches stay known (they are durable there)."""
        return max(progress.match_end or self._own_row_index, self._state.start_index)

    def probe_again(self, out: Output, progress: Progress, now: float) -> None:
        progress.reset(self._resume_index(progress))
        if progress.is_open:
            self.send_range(out, progress, now)

    def may_leave_probe(self, out: Output, progress: Progress, match_end: int, now: float) -> bool:
        """An acceptance outside REPLICATE: may ranges follow from match_end?

        In SNAPSHOT this is a late answer, because a follower acknowledges nothing while it installs a snapshot. Below
        the log start nothing can be sent. Either the log start has risen since the probe, and the probe is repeated; or
        the follower accepted a higher range that is not durable there yet, and its next answer counts.
        """
        if progress.state is ProgressState.SNAPSHOT:
            return False
        start_index = self._state.start_index
        if max(match_end, progress.match_end) < start_index:
            progress.overdue = False
            if progress.next_index < start_index:
                self.probe_again(out, progress, now)
            return False
        return True

    def range_rejected(self, out: Output, progress: Progress, rejected: AppendRejection, now: float) -> None:
        """The follower rejected a range."""
        start_index, hint_index = rejected.start_index, rejected.hint_index
        if progress.state is ProgressState.SNAPSHOT or start_index <= progress.match_end:
            return  # a late answer: below match_end the logs are known to agree
        if progress.state is ProgressState.REPLICATE:
            self.probe_again(out, progress, now)
            return
        if start_index != progress.next_index:
            return  # a late answer to an earlier probe
        state = self._state
        common_end = state.lineage.common_end(min(hint_index, start_index - 1), rejected.hint_term)
        progress.reset(max(common_end, progress.match_end))
        if not progress.is_open:
            return
        is_known_to_differ = (
            common_end == hint_index and state.lineage.term_before(common_end) != rejected.hint_term
        )
        if is_known_to_differ and state.start_index <= progress.next_index == common_end:
            # Only a probe: the follower's log may have a batch boundary here where this log is inside a batch.
            self.send_empty(out, progress, common_end)
            self._expect_answer(now)
        else:
            self.send_range(out, progress, now)

    def resend_overdue(self, out: Output, now: float) -> None:
        """Probe the followers that have owed an answer for a whole resend timeout. Sets the deadline of the next
        look."""
        state = self._state
        timing = state.timing
        for progress in self.followers:
            if not progress.awaiting or not progress.reachable:
                continue
            if progress.state is ProgressState.SNAPSHOT:
                if now - progress.snapshot_sent_at >= timing.snapshot_timeout_s:
                    self.probe_again(out, progress, now)
            elif progress.overdue:
                self.probe_again(out, progress, now)
            else:
                progress.overdue = True
            resend_at = now + timing.resend_timeout_s
            state.deadline = min(state.deadline, resend_at) if state.deadline is not None else resend_at

    # ------------------------------------------------------------------ commit index and log start

    @property
    def has_unsent_commit(self) -> bool:
        """`send_commits` has something to send, now or when a follower has answered."""
        return any(self._lacks_commit(progress) for progress in self.followers)

    def _lacks_commit(self, progress: Progress) -> bool:
        """The follower was not sent the commit index, or has not confirmed the log start, and can be sent them."""
        state = self._state
        lacks = progress.commit_sent < state.commit_end or progress.log_start < state.watermarks.log_start
        return lacks and progress.reachable and progress.state is ProgressState.REPLICATE

    def send_commits(self, out: Output, now: float) -> None:
        """Send them to the followers that have no range on its way, which would bring them."""
        for progress in self.followers:
            if self._lacks_commit(progress) and not progress.awaiting:
                self.send_range(out, progress, now)
