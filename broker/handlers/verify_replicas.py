"""VerifyReplicas: compare the replicas of partitions that this node leads. It is Varve's own, for `varve verify
replicas`.

Behaviour
- The leader compares its replica with those of all other voters, one partition after the other. A replica that is away,
  or stays behind, is not compared, and the answer says why.
- A difference is told, counted and logged. Nothing is done about it.
- A partition is answered when its comparison is over, and after timeout_ms with REQUEST_TIMED_OUT; the comparison goes
  on. It is not begun for clients that are gone. All questions about a partition that have come before are answered
  together. If too many wait for it, another one is POLICY_VIOLATION.
- A comparison that comes to nothing is REQUEST_TIMED_OUT with the reason, or NOT_LEADER_OR_FOLLOWER if this node
  does not lead the partition, or does not any more.

Version: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.topic_checks import check_name
from broker.serving.api import Api
from broker.serving.pending import PENDING, PendingAnswer
from broker.serving.steps import Steps
from broker.verification.results import Compared, LeadershipLostError, MemberResult, NotComparedError
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.verify_replicas import (
    VerifiedReplica,
    VerifyPartition,
    VerifyReplicasRequest,
    VerifyReplicasResponse,
    VerifyTopicResult,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


class PendingComparisons(PendingAnswer[VerifyPartition]):
    __slots__ = ()

    def compared(self, slot: int, result: Compared | NotComparedError) -> None:
        answer = self._slots[slot]
        if answer.error_code != PENDING:
            return  # it was too late
        if isinstance(result, NotComparedError):
            answer.error_message = str(result)
            is_moved = isinstance(result, LeadershipLostError)
            self.partition_done(
                slot, ErrorCode.NOT_LEADER_OR_FOLLOWER if is_moved else ErrorCode.REQUEST_TIMED_OUT
            )
            return
        answer.start_offset, answer.end_offset = result.view
        answer.is_by_key, answer.records = result.is_by_key, result.records
        answer.replicas = [_replica(member) for member in result.members]
        self.partition_done(slot, ErrorCode.NONE)

    def _completed(self, answer: VerifyPartition, slot: int) -> None:
        pass


def _replica(member: MemberResult) -> VerifiedReplica:
    answer = VerifiedReplica(node_id=member.node_id, not_compared=member.not_compared, like=member.like)
    if (difference := member.difference) is not None:
        answer.first_offset, answer.end_offset = difference.offsets
        answer.records_of_leader, answer.records = difference.records_here, difference.records_there
    return answer


def handle(context: Context, request: Request, body: VerifyReplicasRequest) -> Steps:
    response = VerifyReplicasResponse(topics=[])
    pending = PendingComparisons(context, request, response, body.timeout_ms)
    for topic in body.topics:
        answers: list[VerifyPartition] = []
        response.topics.append(VerifyTopicResult(name=topic.name, partitions=answers))
        yield
        for index in dict.fromkeys(topic.partition_indexes):
            answer = VerifyPartition(partition_index=index, replicas=[])
            answers.append(answer)
            try:
                _ask(context, request, pending, topic.name, answer)
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message or None
            yield
    pending.wait_or_reply()


def _ask(
    context: Context, request: Request, pending: PendingComparisons, topic: str, answer: VerifyPartition
) -> None:
    """Raises KafkaError."""
    check_name(topic)
    replica = context.view.replica_named(topic, answer.partition_index)
    if not replica.is_serving:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # It may be refused, so a place for its result comes afterwards.
    context.verification.ask(
        replica, lambda result: pending.compared(slot, result), lambda: request.is_abandoned
    )
    slot = pending.add(answer)


API = Api(ApiKey.VERIFY_REPLICAS, 0, 0, VerifyReplicasRequest, handle)
