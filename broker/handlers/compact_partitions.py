"""CompactPartitions: compact this node's replicas now. It is Varve's own, for `varve topic compact`.

Behaviour
- Each node compacts its own replicas, so a client asks every one that has a replica. The node need not lead.
- The active segment is sealed first. A pass is made although the dirty ratio is low, or a pass has just failed.
  `min.compaction.lag.ms` is kept, and so are the bounds of the group.
- timeout_ms 0: the answer says only that the passes will be made. Otherwise a partition is answered when its pass is
  over, and after that time with REQUEST_TIMED_OUT; the pass goes on.
- A topic without cleanup.policy "compact", and a node with log.cleaner.enable=false, is POLICY_VIOLATION. A pass that
  fails is KAFKA_STORAGE_ERROR with the reason.

Version: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.topic_checks import check_name
from broker.serving.api import Api
from broker.serving.pending import PENDING, PendingAnswer
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.compact_partitions import (
    CompactPartition,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopic,
)

if TYPE_CHECKING:
    from broker.compaction.asked import PassResult
    from broker.network.request import Request
    from broker.serving.context import Context


class PendingPasses(PendingAnswer[CompactPartition]):
    __slots__ = ()

    def pass_over(self, slot: int, result: PassResult | KafkaError) -> None:
        answer = self._slots[slot]
        if answer.error_code != PENDING:
            return  # it was too late
        if isinstance(result, KafkaError):
            answer.error_message = result.message or None
            self.partition_done(slot, result.code)
            return
        answer.bytes_before, answer.bytes_after = result.bytes_before, result.bytes_after
        answer.elapsed_ms = round(result.elapsed_s * 1000)
        answer.cleaned_end_offset, answer.limit = result.cleaned_end, result.limit
        self.partition_done(slot, ErrorCode.NONE)

    def _completed(self, answer: CompactPartition, slot: int) -> None:
        pass


def handle(context: Context, request: Request, body: CompactPartitionsRequest) -> Steps:
    response = CompactPartitionsResponse(topics=[])
    pending = PendingPasses(context, request, response, body.timeout_ms)
    for topic in body.topics:
        answers: list[CompactPartition] = []
        response.topics.append(CompactPartitionsTopic(name=topic.name, partitions=answers))
        yield
        for index in dict.fromkeys(topic.partition_indexes):
            answer = CompactPartition(partition_index=index)
            answers.append(answer)
            try:
                _ask(context, pending, topic.name, answer, waits=body.timeout_ms > 0)
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message or None
            yield
    pending.wait_or_reply()


def _ask(
    context: Context, pending: PendingPasses, topic: str, answer: CompactPartition, *, waits: bool
) -> None:
    """Raises KafkaError."""
    check_name(topic)
    replica = context.view.replica_named(topic, answer.partition_index)
    asked = context.compaction.ask(replica)
    if waits:
        slot = pending.add(answer)
        asked.answers.append(lambda result: pending.pass_over(slot, result))


API = Api(ApiKey.COMPACT_PARTITIONS, 0, 0, CompactPartitionsRequest, handle)
