"""Elections: pre-vote, vote, winning (Raft sections 5.2 and 5.4.1; thesis sections 4.2.3, 6.2 and 9.6).

These are functions of a group's state: an election belongs to no role, but takes a replica from one to the next.
"""

from __future__ import annotations

from raft.candidate import Candidate
from raft.leader import Leader
from raft.state import GroupState
from raft.types import HardState, Output, ReplicaId, VoteReply, VoteRequest

# ---------------------------------------------------------------------- to campaign


def await_first_election(state: GroupState, out: Output, now: float) -> None:
    """Campaign early after a start: no leader is known yet, and a pre-vote does not disturb a live one. The first voter
    goes first, because it is the preferred leader of a new group. An only voter does not wait at all."""
    state.has_ticked = True
    if not state.may_campaign:
        state.deadline = None
    elif state.configuration.voters == (state.self_id,):
        start_pre_vote(state, out, now)
    else:
        is_first = state.configuration.voters[0] == state.self_id
        state.await_election(now, 0.0 if is_first else state.timing.campaign_spread_s)


def start_pre_vote(state: GroupState, out: Output, now: float) -> None:
    """Ask whether an election could be won, without a new term (thesis section 9.6). A candidate that has not won in
    time asks that again, too.

    Postponed while the last row is not durable: winning writes the next row.
    """
    if not state.may_campaign:
        state.deadline = None
        return
    if not state.are_rows_durable:
        state.deadline = _next_attempt(state, now)
        return
    if state.following is None:
        state.become_follower(out, state.term, None, now)
    following = state.following
    assert following is not None and following.leader is None
    out.role_changed = following.pre_vote is None
    state.deadline = _next_attempt(state, now)
    following.pre_vote = candidate = Candidate(state)
    if state.is_voter:
        candidate.count_vote(state.self_id, state.watermarks)
    if candidate.has_majority:
        campaign(state, out, now, transfer=False)
        return
    request = pre_vote_request(state)
    out.messages.extend((voter, request) for voter in _other_voters(state))


def pre_vote_request(state: GroupState) -> VoteRequest:
    return VoteRequest(state.term + 1, state.last_term, state.end_index, True, False)


def campaign(state: GroupState, out: Output, now: float, *, transfer: bool) -> None:
    """Enter the next term, and ask for votes when the own vote is durable. The own vote counts from
    `hard_state_persisted` on. Otherwise an only voter could lead a term, lose that term in a crash, and lead it again
    with another first row."""
    state.set_hard_state(out, state.term + 1, state.self_id)
    state.following = state.leading = None
    state.candidacy = Candidate(state)
    out.role_changed = True
    state.deadline = _next_attempt(state, now)
    request = VoteRequest(state.term, state.last_term, state.end_index, False, transfer)
    out.messages_after_flush.extend((voter, request) for voter in _other_voters(state))


def _next_attempt(state: GroupState, now: float) -> float:
    return now + state.rng.uniform(0.5, 1.0) * state.timing.election_timeout_s


def _other_voters(state: GroupState) -> list[ReplicaId]:
    return [voter for voter in state.configuration.voters if voter != state.self_id]


# ---------------------------------------------------------------------- to win


def count_pre_vote(state: GroupState, out: Output, voter: ReplicaId, reply: VoteReply, now: float) -> None:
    """A voter would vote for this replica."""
    following = state.following
    if following is None or following.pre_vote is None or reply.term != state.term + 1:
        return
    if following.pre_vote.count_vote(voter, reply.watermarks):
        campaign(state, out, now, transfer=False)


def count_vote(state: GroupState, out: Output, voter: ReplicaId, reply: VoteReply, now: float) -> None:
    """A voter has voted for this replica. Its own vote counts when it is durable."""
    candidate = state.candidacy
    if candidate is None or reply.term != state.term:
        return
    if candidate.count_vote(voter, reply.watermarks):
        _become_leader(state, candidate, out, now)


def _become_leader(state: GroupState, candidate: Candidate, out: Output, now: float) -> None:
    """The election is won: order the voters' highest watermarks, and send the first row of the term to all members."""
    assert state.are_rows_durable
    out.watermarks = candidate.highest_watermarks()
    out.role_changed = True
    state.deadline = None
    state.candidacy = None
    state.leading = Leader(state)
    state.leading.open_term(out, now)


# ---------------------------------------------------------------------- to vote


def answer_pre_vote(
    state: GroupState, out: Output, candidate: ReplicaId, request: VoteRequest, now: float
) -> bool:
    """Answer a pre-vote. It changes nothing here, except when this replica campaigns. Returns whether it is granted."""
    granted = (
        request.term > state.term
        and _is_up_to_date(state, request)
        and not _follows_live_leader(state, candidate, request)
    )
    if (
        granted
        and state.following is not None
        and state.following.pre_vote is None
        and state.deadline is not None
    ):
        # The candidate is about to campaign. Rivals would split the vote, and its flush takes far longer than the
        # pre-vote. The head start is shorter than the time to the candidate's next attempt, so a candidate that
        # cannot win does not hold off the others for ever.
        head_start_s = state.rng.uniform(0.25, 0.5) * state.timing.election_timeout_s
        state.deadline = max(state.deadline, now + head_start_s)
    reply_term = request.term if granted else state.term
    out.messages.append((candidate, VoteReply(reply_term, granted, True, state.watermarks)))
    return granted


def answer_vote(
    state: GroupState, out: Output, candidate: ReplicaId, request: VoteRequest, now: float
) -> None:
    """Answer a vote request. The answer always leaves after the flush: its term and vote may not be durable yet, also
    if it repeats an earlier answer."""
    if request.term > state.term and not _follows_live_leader(state, candidate, request):
        state.become_follower(out, request.term, None, now)
    granted = (
        request.term == state.term
        and _is_up_to_date(state, request)
        and state.voted_for in (None, candidate)
        and state.leader is None
    )
    if granted:
        if state.voted_for is None:
            state.set_hard_state(out, state.term, candidate)
        state.become_follower(out, state.term, None, now)
        assert HardState(state.term, candidate) == state.hard_state
    reply = VoteReply(state.term, granted, False, state.watermarks)
    out.messages_after_flush.append((candidate, reply))


def _is_up_to_date(state: GroupState, request: VoteRequest) -> bool:
    """The candidate's log is at least as complete as this one (Raft section 5.4.1)."""
    return (request.last_term, request.end_index) >= (state.last_term, state.end_index)


def _follows_live_leader(state: GroupState, candidate: ReplicaId, request: VoteRequest) -> bool:
    """A replica that follows a live leader refuses its vote, unless that leader itself asks: then it has resigned."""
    return state.leader is not None and state.leader != candidate and not request.transfer
