"""What another replica says and cannot be true. A host asks before it tells a group of a message.

Each function takes the state of the group and what the message says, and returns a `Refusal` or None. Nothing is
changed. What is refused cannot come from replicas that follow the rules, however late, repeated or out of order it
arrives. Messages of earlier terms, of removed members and of learners are not refused: they are legitimate, and the
group ignores or answers them.

What no replica can know is not noticed here: a leader that lies about what follows on the committed log, or a voter
that grants two votes. Raft tolerates replicas that stop, not replicas that lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from raft.follower import first_difference
from raft.leader import single_change_refusal
from raft.types import (
    FOUNDING_TERM,
    NO_TERM,
    AppendRejection,
    Configuration,
    ReplicaId,
    Row,
    RowKind,
    VoteReply,
    VoteRequest,
)

if TYPE_CHECKING:
    from raft.state import GroupState

#: No message raises a term by more than this. At an election in half a second that is 97 days without a leader.
MAX_TERM_JUMP = 1 << 24
#: No index or offset is above this. It leaves room for sums.
MAX_INDEX = 1 << 62
#: Of a configuration.
MAX_MEMBERS = 1000


class Refusal(NamedTuple):
    """Why a message cannot be true."""

    reason: str
    is_contradiction: bool
    """The message is well-formed, but contradicts what is known here. Its sender may be honest, and this replica, or
    a third one, the victim of an earlier lie: the message is passed over like one that was lost, and nothing else is
    made to suffer. False: its sender is broken or lies."""


def _malformed(reason: str) -> Refusal:
    return Refusal(reason, False)


def _contradiction(reason: str) -> Refusal:
    return Refusal(reason, True)


# ---------------------------------------------------------------------- every message


def term_refusal(state: GroupState, term: int) -> Refusal | None:
    """Of a term that a member is in, or would enter: there cannot have been so many elections since this replica has
    heard of one."""
    if term > state.term + MAX_TERM_JUMP:
        return _contradiction(f"term {term}, where this replica is in term {state.term}")
    return _malformed(f"term {term}") if term < FOUNDING_TERM else None


def leadership_refusal(state: GroupState, leader: ReplicaId, term: int) -> Refusal | None:
    """Of a replica that says, by whatever message, that it leads in `term`."""
    if term != state.term:
        return term_refusal(state, term)
    if term < 0:
        return _malformed(f"a leader of term {term}")
    following = state.following
    if following is None:
        # A candidate has not won.
        return (
            None
            if state.leading is None
            else _contradiction("a second leader of this term, which leads here")
        )
    known = following.leader
    if known is None or known.node_id == leader.node_id:
        return None
    return _contradiction(f"a second leader of term {term}, beside node {known.node_id}")


def log_start_refusal(state: GroupState, term: int, log_start: int) -> Refusal | None:
    """Of the log start of a replica in `term`. It is committed, so the log of a leader of that term, or of a later one,
    reaches it. (A leader that is deposed and does not know it yet may hear of more.)"""
    if log_start < 0:
        return _malformed(f"a log start of {log_start}")
    if log_start > state.end_offset and state.leading is not None and term <= state.term:
        return _contradiction(f"a log start of {log_start} where the leader's log ends at {state.end_offset}")
    return None


# ---------------------------------------------------------------------- replication
#
# append_refusal and append_reply_refusal are asked for every record: their checks are comparisons of numbers.


def append_refusal(
    state: GroupState,
    leader: ReplicaId,
    term: int,
    start_index: int,
    start_offset: int,
    prev_term: int,
    to_index: int,
    rows: Sequence[Row],
    commit_end: int,
    log_start: int,
) -> Refusal | None:
    """Of a range: see `Group.append_received`. `start_offset` is that of the first record at or above start_index;
    `log_start` is the leader's."""
    if not 0 <= start_index <= to_index <= MAX_INDEX or not 0 <= log_start <= commit_end <= MAX_INDEX:
        return _malformed(
            f"a range from {start_index} to {to_index}, of a log from {log_start}, {commit_end} committed"
        )
    if not NO_TERM <= prev_term <= term or (prev_term == NO_TERM) != (start_index == 0) or term < 0:
        return _malformed(f"term {prev_term} before index {start_index}, by a leader of term {term}")
    if not 0 <= start_offset <= start_index:
        return _malformed(f"offset {start_offset} at index {start_index}")
    if rows and (reason := _range_rows_problem(rows, prev_term, to_index, term)) is not None:
        return _malformed(reason)
    if term < state.term:
        return None  # it is going to be rejected
    refusal = leadership_refusal(state, leader, term)
    if refusal is not None or state.is_installing:
        return refusal
    if log_start > _committed_offset(state, commit_end):
        return _contradiction(f"a log start of {log_start} where {commit_end} entries are committed")
    lineage = state.lineage
    if start_index > state.end_index or lineage.term_before(start_index) != prev_term:
        if start_index > state.commit_end:
            return None  # it is going to be rejected
        return _contradiction(f"term {prev_term} before index {start_index}, where all is committed here")
    if start_index - start_offset != lineage.count_below(start_index):
        return _contradiction(f"offset {start_offset} at index {start_index}")
    commit_end = _committed_end(state)
    if start_index < commit_end and start_index < to_index:
        end = min(commit_end, to_index)
        difference = first_difference(lineage.between(start_index, end), rows, end)
        if difference is not None:
            return _contradiction(f"another entry at {difference}, which is committed here")
    return _change_refusal(state, start_index, rows[-1]) if rows else None


def kept_end(state: GroupState, start_index: int, to_index: int, rows: Sequence[Row]) -> int:
    """The end of what stays of this log when a range that follows on it is taken. A batch ends here, in this log and in
    the range, if the range is a leader's."""
    end = min(state.end_index, to_index)
    if start_index >= end:
        return state.end_index
    difference = first_difference(state.lineage.between(start_index, end), rows, end)
    return state.end_index if difference is None else difference


def append_reply_refusal(state: GroupState, term: int, match_end: int, log_start: int) -> Refusal | None:
    """Of an answer to a range, or to a snapshot."""
    if term != state.term:
        refusal = term_refusal(state, term)
        if refusal is not None:
            return refusal
    elif state.leading is not None and match_end > state.end_index:
        return _contradiction(f"a log up to {match_end}, where the leader's ends at {state.end_index}")
    if match_end < 0:
        return _malformed(f"a log up to {match_end}")
    return log_start_refusal(state, term, log_start)


def append_rejection_refusal(state: GroupState, rejected: AppendRejection) -> Refusal | None:
    """Of a rejection. It may be of an earlier leader's range, which went beyond the present log."""
    if not 0 <= rejected.hint_index <= rejected.start_index <= MAX_INDEX:
        return _malformed(f"a hint of {rejected.hint_index} for a range from {rejected.start_index} on")
    if not NO_TERM <= rejected.hint_term <= rejected.term or rejected.term < 0:
        return _malformed(f"a hint of term {rejected.hint_term} in term {rejected.term}")
    return term_refusal(state, rejected.term) or log_start_refusal(state, rejected.term, rejected.log_start)


def log_start_ack_refusal(state: GroupState, term: int, log_start: int) -> Refusal | None:
    """Of a follower's log start outside of ranges."""
    return term_refusal(state, term) or log_start_refusal(state, term, log_start)


def log_start_update_refusal(
    state: GroupState, leader: ReplicaId, term: int, commit_end: int, log_start: int
) -> Refusal | None:
    """Of a leader's log start outside of ranges."""
    if not 0 <= log_start <= commit_end <= MAX_INDEX:
        return _malformed(f"a log start of {log_start} where {commit_end} entries are committed")
    if term < state.term:
        return None
    if log_start > _committed_offset(state, commit_end):
        return _contradiction(f"a log start of {log_start} where {commit_end} entries are committed")
    return leadership_refusal(state, leader, term)


def install_snapshot_refusal(
    state: GroupState, leader: ReplicaId, term: int, log_start: int, rows: Sequence[Row]
) -> Refusal | None:
    """Of a snapshot: see `Group.install_snapshot_received`."""
    end_index = log_start + len(rows)
    if not 0 <= log_start <= end_index <= MAX_INDEX or term < 0:
        return _malformed(f"a snapshot of term {term} that begins at {log_start}")
    if not rows or rows[0].index != 0 or rows[0].kind is not RowKind.CONFIGURATION:
        return _malformed("a snapshot without the founding configuration")
    if (
        rows[-1].index - (len(rows) - 1) >= log_start
        or not FOUNDING_TERM <= rows[0].term <= rows[-1].term <= term
    ):
        return _malformed(f"a snapshot of term {term} from {log_start} on, with {rows[-1]}")
    for before, row in pairwise(rows):
        if row.index <= before.index or row.term < before.term:
            return _malformed(f"{row} behind {before}")
    if (reason := _configurations_problem(rows)) is not None:
        return _malformed(reason)
    if term < state.term:
        return None
    refusal = leadership_refusal(state, leader, term)
    if refusal is not None or state.is_installing:
        return refusal
    end = min(_committed_end(state), end_index)
    if state.lineage.between(0, end) != [row for row in rows if row.index < end]:
        return _contradiction(f"other rows below {end}, where all is committed here")
    return None


# ---------------------------------------------------------------------- elections


def vote_request_refusal(state: GroupState, request: VoteRequest) -> Refusal | None:
    """A candidate has entered a term, or would, that is above all terms in its log. Its log is not empty."""
    if not FOUNDING_TERM <= request.last_term < request.term or request.term < 0:
        return _malformed(
            f"a candidate for term {request.term} whose last entry is of term {request.last_term}"
        )
    if not 0 < request.end_index <= MAX_INDEX:
        return _malformed(f"a candidate whose log ends at {request.end_index}")
    return term_refusal(state, request.term)


def vote_reply_refusal(state: GroupState, reply: VoteReply) -> Refusal | None:
    """Whoever is granted a vote has everything that the voter knows to be committed."""
    if min(reply.watermarks) < -1 or reply.watermarks.log_start < 0:
        return _malformed(f"watermarks of {tuple(reply.watermarks)}")
    refusal = term_refusal(state, reply.term)
    if refusal is not None:
        return refusal
    is_of_own_election = reply.granted and state.following is None and reply.term <= state.term
    if is_of_own_election and max(reply.watermarks) > state.end_offset:
        return _contradiction(
            f"watermarks of {tuple(reply.watermarks)} with a vote for a log that ends at {state.end_offset}"
        )
    return None


# ---------------------------------------------------------------------- details


def configuration_problem(configuration: Configuration) -> str | None:
    """Why these cannot be the members of a group, by themselves. None: they can."""
    voters, members = configuration.voters, configuration.members
    if not voters or len(members) > MAX_MEMBERS:
        return f"a configuration of {len(voters)} voters and {len(members) - len(voters)} learners"
    if len(dict.fromkeys(members)) < len(members) or len({voter.node_id for voter in voters}) < len(voters):
        return "a configuration that names a replica, or a node, twice"
    if min(min(member.node_id, member.incarnation) for member in members) < 0:
        return "a configuration with a negative id"
    return None


def _committed_end(state: GroupState) -> int:
    """What is surely committed: at least the founding configuration, of a replica that it names. (A replica that was
    started again has a commit index of 0. A blank one was told by a leader how the group was founded.)"""
    rows = state.lineage.rows
    is_founder = (
        bool(rows) and rows[0].configuration is not None and rows[0].configuration.names(state.self_id)
    )
    return max(state.commit_end, int(is_founder))


def _committed_offset(state: GroupState, commit_end: int) -> int:
    """The highest offset that a leader's commit index can stand for: its log has the rows that are committed here."""
    return commit_end - state.lineage.count_below(min(commit_end, state.commit_end))


def _range_rows_problem(rows: Sequence[Row], prev_term: int, to_index: int, term: int) -> str | None:
    """A range holds a row only as its last entry."""
    row = rows[0]
    if len(rows) > 1 or row.index != to_index - 1:
        return f"{len(rows)} rows, the first at {row.index}, in a range up to {to_index}"
    if not max(prev_term, FOUNDING_TERM) <= row.term <= term:
        return f"a row of term {row.term} behind term {prev_term}, by a leader of term {term}"
    if row.index == 0 and row.kind is not RowKind.CONFIGURATION:
        return "a log without the founding configuration"
    return _configurations_problem(rows)


def _configurations_problem(rows: Sequence[Row]) -> str | None:
    """Of configurations, each by itself and as a change of the one before."""
    newest: Configuration | None = None
    for row in rows:
        if row.configuration is None:
            continue
        reason = configuration_problem(row.configuration)
        if reason is None and newest is not None:
            reason = single_change_refusal(newest, row.configuration)
        if reason is not None:
            return f"at {row.index}: {reason}"
        newest = row.configuration
    return None


def _change_refusal(state: GroupState, start_index: int, row: Row) -> Refusal | None:
    """Of a configuration in a range that follows on this log: members change one at a time."""
    if row.configuration is None or row.index == 0:
        return None
    before = state.lineage.configuration_before(start_index)
    if before is None:
        return _contradiction(f"a change at {row.index} of a group that was not founded")
    reason = single_change_refusal(before, row.configuration)
    return None if reason is None else _contradiction(f"at {row.index}: {reason}")
