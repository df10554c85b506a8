"""One comparison of a leader's log with those of the other voters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from broker.replication.digest_state import DigestState
from broker.replication.replica import Replica
from broker.verification.own_digest import DigestMaker, raise_failure
from broker.verification.results import (
    ASKED_ANEW,
    Answer,
    Compared,
    Difference,
    LeadershipLostError,
    MemberResult,
    NotComparedError,
    Question,
    group_alike,
    must_ask_anew,
)
from protocol import peer
from protocol.errors import ProtocolError
from raft.types import ReplicaId
from storage.compaction.view_digest import OffsetRange, RangeDigest

#: A question is repeated after this time.
REPEAT_S = 1.0
#: How long is waited for a member that is behind or busy, or says nothing.
PATIENCE_S = 60.0
#: How often a comparison begins anew, because a log has changed meanwhile.
MAX_ATTEMPTS = 5

OFFLINE = "offline"
NO_ANSWER = "it does not answer"


class Asking:
    """One question to members, and what they have answered."""

    def __init__(
        self, replica: Replica, number: int, question: Question, members: Sequence[ReplicaId]
    ) -> None:
        self.replica = replica
        self.number = number
        self.question = question
        self.term = replica.group.term
        self.answers: dict[ReplicaId, Answer | None] = dict.fromkeys(members)
        #: Of members that have said so.
        self.log_start = 0
        #: Nothing more is waited for from these, and why.
        self.given_up: dict[ReplicaId, str] = {}
        self.changed = asyncio.Event()

    def replied(self, member: ReplicaId, message: peer.DigestReply) -> None:
        """Raises ProtocolError."""
        if member not in self.answers or message.term != self.term:
            return
        state = DigestState(message.state)
        answer: Answer = state
        if state is DigestState.READY:
            try:
                answer = RangeDigest.decode(self.question.focus, message.digest)
            except ValueError as error:
                raise ProtocolError(str(error)) from error
        self.log_start = max(self.log_start, message.log_start)
        self.answers[member] = answer
        self.changed.set()

    def request(self, member: ReplicaId) -> peer.DigestRequest:
        key, group, question = self.replica.key, self.replica.group, self.question
        return peer.DigestRequest(
            topic_id=key.topic_id,
            partition=key.partition,
            incarnation=group.self_id.incarnation,
            follower_incarnation=member.incarnation,
            term=self.term,
            number=self.number,
            start_offset=question.view.start,
            end_offset=question.view.end,
            focus_start=question.focus.start,
            focus_end=question.focus.end,
            is_by_key=question.is_by_key,
            is_background=question.is_background,
        )

    def pending(self) -> list[ReplicaId]:
        """Members that may have more to say to this question."""
        return [
            member
            for member, answer in self.answers.items()
            if not (isinstance(answer, RangeDigest) or answer in ASKED_ANEW or member in self.given_up)
        ]


class Comparison:
    """The log is held by the caller: no pass of compaction begins meanwhile."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replica: Replica,
        maker: DigestMaker,
        alive: Callable[[], Collection[int]],
        begin: Callable[[Replica, Question, Sequence[ReplicaId]], Asking],
        end: Callable[[Asking], None],
        *,
        is_background: bool,
    ) -> None:
        """`alive`: the nodes that are there. `begin` and `end`: between them, replies reach the question."""
        self._loop = loop
        self._replica = replica
        self._maker = maker
        self._alive = alive
        self._begin = begin
        self._end = end
        self._is_background = is_background
        self._term = replica.group.term
        self._deadline = loop.time() + PATIENCE_S

    async def run(self) -> Compared:
        """Raises NotComparedError; MissingPathError if somebody took the log's files away."""
        group = self._replica.group
        self._check_leads()
        voters = [member for member in group.configuration.voters if member != group.self_id]
        starts = [0 if (p := group.progress_of(member)) is None else p.log_start for member in voters]
        start, is_by_key = max([self._replica.log.start_offset, *starts]), self._replica.bounds.is_in_use
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            self._check_leads()
            # Everything that any replica has compacted up to now lies below. (README, Non-obvious)
            end = self._replica.last_stable_offset
            view = OffsetRange(min(start, end), end)
            question = Question(view, view, is_by_key, self._is_background)
            own, asking = await self._ask(question, voters, is_last=not attempts_left)
            answers = [own, *asking.answers.values()]
            if isinstance(own, RangeDigest) and not (attempts_left and must_ask_anew(answers)):
                return await self._judge(question, own, asking)
            is_by_key = is_by_key or DigestState.REWRITTEN in answers
            start = max(start, self._replica.log.start_offset, asking.log_start)
            await asyncio.sleep(REPEAT_S)
        raise NotComparedError("the logs changed all the while")

    def _check_leads(self) -> None:
        replica = self._replica
        if not (replica.is_open and replica.is_serving and replica.group.term == self._term):
            raise LeadershipLostError("the leader has changed")
        if not replica.log_start.establish_committed():
            raise LeadershipLostError("the leader has just been elected")

    async def _ask(
        self, question: Question, members: Sequence[ReplicaId], *, is_last: bool
    ) -> tuple[Answer, Asking]:
        """The own answer, and those of the members. It ends as soon as another question has to be asked, unless this
        is the last one."""
        asking = self._begin(self._replica, question, members)
        own = self._loop.create_task(self._maker.make(self._replica, question))
        own.add_done_callback(lambda _: asking.changed.set())
        # Also if nobody waits for it any more.
        own.add_done_callback(raise_failure)
        ask_at = self._loop.time()
        try:
            while True:
                self._check_leads()
                answer = own.result() if own.done() else DigestState.MAKING
                self._give_up_on(asking)
                pending = asking.pending()
                is_vain = not is_last and must_ask_anew([answer, *asking.answers.values()])
                if is_vain or (own.done() and not pending):
                    return answer, asking
                # Not after each answer: a member that is not done says so at once.
                if self._loop.time() >= ask_at:
                    ask_at = self._loop.time() + REPEAT_S
                    for member in pending:
                        self._replica.host.send(member, asking.request(member))
                asking.changed.clear()
                timer = self._loop.call_at(ask_at, asking.changed.set)
                await asking.changed.wait()
                timer.cancel()
        finally:
            self._end(asking)
            own.cancel()

    def _give_up_on(self, asking: Asking) -> None:
        alive, is_late = self._alive(), self._loop.time() >= self._deadline
        for member in asking.pending():
            answer = asking.answers[member]
            if member.node_id not in alive:
                asking.given_up[member] = OFFLINE
            elif is_late and answer is not DigestState.MAKING:
                asking.given_up[member] = answer.words if isinstance(answer, DigestState) else NO_ANSWER

    async def _judge(self, question: Question, own: RangeDigest, asking: Asking) -> Compared:
        own_id = self._replica.group.self_id.node_id
        compared = Compared(question.view, question.is_by_key, own.count)
        digests = {own_id: own}
        results = {own_id: MemberResult(own_id)}
        for member, answer in asking.answers.items():
            result = results[member.node_id] = MemberResult(member.node_id)
            if isinstance(answer, RangeDigest):
                digests[member.node_id] = answer
                if answer != own:
                    result.difference = await self._find_difference(question, own, answer, member)
            else:
                said = "" if answer is None else answer.words
                result.not_compared = asking.given_up.get(member, said)
        for learner in self._replica.group.configuration.learners:
            results.setdefault(learner.node_id, MemberResult(learner.node_id, "it is being added"))
        for node_id, like in group_alike(digests).items():
            results[node_id].like = like
        compared.members = list(results.values())
        return compared

    async def _find_difference(
        self, question: Question, own: RangeDigest, theirs: RangeDigest, member: ReplicaId
    ) -> Difference:
        """The first difference, as exactly as the member goes on to answer."""
        found: Difference | None = None
        while (at := own.first_difference(theirs)) is not None:
            offsets = own.range.part(at)
            found = Difference(offsets, own.counts[at], theirs.counts[at])
            if offsets.end - offsets.start == 1:
                break
            try:
                answer, asking = await self._ask(question._replace(focus=offsets), [member], is_last=True)
            except NotComparedError:
                break
            their_answer = asking.answers[member]
            if not isinstance(answer, RangeDigest) or not isinstance(their_answer, RangeDigest):
                break
            own, theirs = answer, their_answer
        assert found is not None
        return found
