"""ElectLeaders: transfer leadership to the preferred replica, the first of a partition's replicas (KIP-183).

Behaviour
- Each partition's leader is asked to transfer its leadership to the preferred replica, if that is connected and keeps
  up. The answer comes when the new leader serves, or it is REQUEST_TIMED_OUT (7).
- ELECTION_NOT_NEEDED (84): the preferred replica leads already. PREFERRED_LEADER_NOT_AVAILABLE (80): it cannot lead
  now. If all partitions are requested (null), those that need no election are left out.
- An unclean election (type 1) is never held, because its leader could lack acknowledged records. If the partition has a
  leader, the answer is 84. Otherwise it is ELIGIBLE_LEADERS_NOT_AVAILABLE (83): a majority has to come back.

Versions: 1 election type, an error code for all; 2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.replicas import LedPartition, TransferLeadership, TransferLeadershipResult
from protocol.errors import ErrorCode, KafkaError, known_error
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.metadata.records import TopicRecord
    from broker.network.request import Request
    from broker.serving.context import Context

PREFERRED, UNCLEAN = 0, 1
_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.ELECTION_NOT_NEEDED: "the preferred replica is the leader already",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not connected, lags, or is not a voter yet",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: (
        "unclean elections are not supported: a majority of the replicas has to come back"
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the leader has just changed",
    ErrorCode.REQUEST_TIMED_OUT: "the preferred replica is not the leader yet",
}


class Elections:
    """One request: the elections that it asks for, and their results."""

    def __init__(self, context: Context, request: Request, body: ElectLeadersRequest) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._deadline = context.now() + max(body.timeout_ms, 0) / 1000
        #: Topic and partition -> result, in the order of the request; None: no result yet.
        self._codes: dict[tuple[str, int], ErrorCode | None] = {}
        #: How many leaders are asked, and the results of their partitions are not all known.
        self._leaders_left = 0

    def start(self) -> Steps:
        image = self._context.image
        asked: dict[int, list[tuple[TopicRecord, int]]] = {}
        for name, number in self._wanted():
            yield
            if (name, number) in self._codes:
                continue
            topic = image.topic_named(name)
            if topic is None or not 0 <= number < len(topic.partitions):
                self._codes[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            leader, _ = self._context.view.leader_of_id(topic.topic_id, number)
            code = self._codes[name, number] = self._code_without_leader(
                leader, topic.partitions[number].replicas[0]
            )
            if code is None:
                asked.setdefault(leader, []).append((topic, number))
        if not asked:
            yield from self._answer()
        self._leaders_left = len(asked)
        for leader, partitions in asked.items():
            yield from self._ask(leader, partitions)

    def _ask(self, leader: int, partitions: list[tuple[TopicRecord, int]]) -> Steps:
        request = TransferLeadership(partitions=[])
        for topic, number in partitions:
            request.partitions.append(LedPartition(topic_id=topic.topic_id, partition=number))
            yield
        self._context.controller.call(request, partial(self._leader_answered, partitions), node_id=leader)

    def _wanted(self) -> Iterator[tuple[str, int]]:
        """The requested partitions. One may come several times."""
        topics = self._body.topic_partitions
        if topics is None:
            present = list(self._context.image.topics_by_name())
            return ((topic.name, number) for topic in present for number in range(len(topic.partitions)))
        return ((topic.topic, number) for topic in topics for number in topic.partitions)

    def _code_without_leader(self, leader: int, preferred: int) -> ErrorCode | None:
        """The result, if it can be given without asking the partition's leader; else None."""
        if self._body.election_type == UNCLEAN:
            return ErrorCode.ELECTION_NOT_NEEDED if leader >= 0 else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if leader < 0:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED if leader == preferred else None

    def _leader_answered(
        self, partitions: list[tuple[TopicRecord, int]], result: TransferLeadershipResult | KafkaError
    ) -> None:
        """A leader has answered for its partitions, or could not be asked."""
        self._context.long_requests.resume(self._request, self._wait(partitions, result))

    def _wait(
        self, partitions: list[tuple[TopicRecord, int]], result: TransferLeadershipResult | KafkaError
    ) -> Steps:
        under_way: dict[GroupKey, str] = {}
        targets: dict[GroupKey, int | None] = {}
        for position, (topic, number) in enumerate(partitions):
            yield
            code = (
                result.code if isinstance(result, KafkaError) else known_error(result.error_codes[position])
            )
            if code != ErrorCode.NONE:
                self._set_code(topic.name, number, code)
            else:
                key = GroupKey(topic.topic_id, number)
                under_way[key], targets[key] = topic.name, topic.partitions[number].replicas[0]
        self._context.leader_waits.wait_for_leaders(
            targets, self._deadline, partial(self._wait_over, under_way)
        )

    def _wait_over(self, under_way: dict[GroupKey, str], not_led: frozenset[GroupKey]) -> None:
        self._context.long_requests.resume(self._request, self._record_led(under_way, not_led))

    def _record_led(self, under_way: dict[GroupKey, str], not_led: frozenset[GroupKey]) -> Steps:
        for key, topic in under_way.items():
            self._set_code(
                topic, key.partition, ErrorCode.REQUEST_TIMED_OUT if key in not_led else ErrorCode.NONE
            )
            yield
        self._leaders_left -= 1
        if not self._leaders_left:
            yield from self._answer()

    def _set_code(self, topic: str, number: int, code: ErrorCode) -> None:
        assert self._codes[topic, number] is None, "decided once"
        self._codes[topic, number] = code

    def _answer(self) -> Steps:
        shows_all = self._body.topic_partitions is not None
        results: dict[str, ReplicaElectionResult] = {}
        for (topic, number), code in self._codes.items():
            assert code is not None
            if shows_all or code != ErrorCode.ELECTION_NOT_NEEDED:
                result = results.get(topic)
                if result is None:
                    result = results[topic] = ReplicaElectionResult(topic=topic, partition_result=[])
                result.partition_result.append(
                    PartitionResult(partition_id=number, error_code=code, error_message=_WORDS.get(code))
                )
            yield
        response = ElectLeadersResponse(replica_election_results=list(results.values()))
        yield from steps.reply(self._request, response)


def handle(context: Context, request: Request, body: ElectLeadersRequest) -> Steps:
    if body.election_type in (PREFERRED, UNCLEAN):
        return Elections(context, request, body).start()
    refused = ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    return steps.reply(request, refused)


API = Api(ApiKey.ELECT_LEADERS, 0, 2, ElectLeadersRequest, handle)
