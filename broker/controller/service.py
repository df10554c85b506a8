"""`__cluster_metadata` at work: the image that everybody reads, and the controller while this node leads.

The image is a replay of committed records only. While this node leads, the controller decides against an image of its
own, which replays records at append; an answer leaves when the log end that it saw is committed (replication.md
section 9). Losing leadership throws that image away.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import structlog

from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.controller.operations import OF_NODES, OPERATIONS, Leadership
from broker.controller.replay import replay
from broker.controller.server import TIMEOUT_S
from broker.environment import Clock
from broker.metadata.controller import Controller
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.metadata.image import Change, MetadataImage
from broker.metadata.records import BrokerRecord, KeyValue
from broker.metadata.requests import Decision
from broker.replication.events import ReplicaEvents
from broker.replication.ranges import MAX_METADATA_APPEND_BYTES
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.background import Background, Steps
from protocol.controller.request import Request, Result, ResultT
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import parse_header
from protocol.records.builder import BatchBuilder, NewRecord
from storage.log_types import GroupKey

logger = structlog.get_logger()

METADATA_KEY = GroupKey(METADATA_TOPIC_ID, 0)

#: How long a request waits for its decision. Who asks waits for TIMEOUT_S: with as much, each request of a full queue
#: would be decided just when its asker gives up.
MAX_QUEUED_S = TIMEOUT_S - 2
#: A decision is cut into batches that a range to a follower can hold.
MAX_BATCH_BYTES = MAX_METADATA_APPEND_BYTES


class _Asked(NamedTuple):
    """A request that waits for a decision."""

    request: Request[Any]
    reply: Callable[[Any, int], None]
    """Gets the answer and the image end."""
    deadline: float
    """Loop time, after which it is not decided about any more."""


class _Answers:
    """Acknowledgement of decisions: one waiter per appended decision."""

    def __init__(self, answer: Callable[[ErrorCode], None]) -> None:
        self._answer = answer

    def partition_done(self, slot: int, error_code: ErrorCode) -> None:
        self._answer(error_code)


def controller_config(config: NodeConfig) -> ControllerConfig:
    """What the controller's decisions take from the settings of its node."""
    is_factor_given = "default.replication.factor" in config.given
    return ControllerConfig(
        num_partitions=config.num_partitions,
        # None: 3, or as many as there are brokers.
        default_replication_factor=config.default_replication_factor if is_factor_given else None,
        expected_brokers=len(config.quorum_voters),
        max_partitions=config.max_partitions,
        descriptor_limit=config.descriptor_limit,
        max_settings_bytes=config.max_settings_bytes,
    )


class MetadataService:
    """Follows the metadata replica. `attach_replica` once it exists."""

    def __init__(
        self,
        config: ControllerConfig,
        quorum_voters: Sequence[int],
        resources: Resources,
        clock: Clock,
        now: Callable[[], float],
        rng: random.Random,
        reads: Reads,
        background: Background,
        events: ReplicaEvents,
        is_alive: Callable[[BrokerRecord], bool],
    ) -> None:
        """`now`: loop time. `is_alive`: whether that very registration is connected now."""
        self._config = config
        self._quorum_voters = quorum_voters
        self._resources = resources
        self._clock = clock
        self._now = now
        self._rng = rng
        self._reads = reads
        self._background = background
        self._is_alive = is_alive
        self.image = MetadataImage()
        #: Called with each committed change, in log order. The next record is replayed when the steps are done that
        #: they return, if any.
        self.on_change: list[Callable[[Change], Steps | None]] = []
        #: Called when everything committed is replayed, and now and then before. May return steps, too.
        self.on_read: list[Callable[[], Steps | None]] = []
        self.replica: Replica | None = None
        self._is_replaying = False
        #: Set while this node leads and serves, and the controller's image agrees with the log's end.
        self._leadership: Leadership | None = None
        #: Requests that wait for a decision: what nodes ask for themselves, and what clients ask for.
        self._asked: deque[_Asked] = deque()
        self._asked_by_clients: deque[_Asked] = deque()
        self._is_deciding = False
        events.role_changed.append(self._role_changed)
        events.commit_advanced.append(self._commit_advanced)

    def attach_replica(self, replica: Replica) -> None:
        assert self.replica is None
        self.replica = replica

    def assigned(self, key: GroupKey) -> Sequence[int]:
        """The nodes that should hold a partition, or still do; for the metadata, the configured voters."""
        if key == METADATA_KEY:
            return self._quorum_voters
        topic = self.image.topics.get(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return ()
        return topic.partitions[key.partition].holders

    # -- the image ---------------------------------------------------------------------------------------

    @property
    def is_image_whole(self) -> bool:
        """Whether the image shows everything of whose commit this node has heard. Before, it may lack what is there
        since long: the log was copied from a compacted one, and the record that superseded another is not here yet."""
        replica = self.replica
        return (
            replica is not None
            and replica.group.commit_end >= replica.group.told_commit_end
            and self.image.end_offset >= replica.high_watermark
        )

    def _commit_advanced(self, replica: Replica) -> None:
        """Replay what is newly committed, if it is the metadata's."""
        if replica is self.replica and not self._is_replaying:
            self._is_replaying = True
            self._background.run(self._replay_committed(replica))

    def _replay_committed(self, replica: Replica) -> Steps:
        """In steps: thousands of records may be committed at a time. What is committed without records is news, too
        (`is_image_whole`)."""
        commit_end = -1
        while replica.is_open and commit_end < replica.group.commit_end:
            commit_end = replica.group.commit_end
            yield from replay(replica, self.image, lambda: replica.high_watermark, self._changed, self._read)
        self._is_replaying = False

    def _changed(self, change: Change) -> Steps:
        for changed in self.on_change:
            yield from changed(change) or ()

    def _read(self) -> Steps:
        for read in self.on_read:
            yield from read() or ()

    # -- the controller ----------------------------------------------------------------------------------

    def _role_changed(self, replica: Replica) -> None:
        if replica is not self.replica:
            return
        if replica.is_serving:
            self._start_deciding()
        elif self._leadership is not None:
            self._leadership = None
            logger.info("this node is the controller no longer", epoch=replica.leader_epoch)

    def execute(self, request: Request[ResultT], reply: Callable[[ResultT | KafkaError, int], None]) -> None:
        """Decide, append, answer when committed (`broker.controller.server.Execute`)."""
        if self.replica is None or not self.replica.is_serving:
            _refuse(reply)
            return
        if type(request) not in OPERATIONS:
            reply(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no controller carries this out"), 0)
            return
        # What nodes ask for themselves does not wait for all that clients ask for.
        waiting = self._asked if type(request) in OF_NODES else self._asked_by_clients
        waiting.append(_Asked(request, reply, self._now() + MAX_QUEUED_S))
        self._start_deciding()

    def _start_deciding(self) -> None:
        if not self._is_deciding:
            self._is_deciding = True
            self._background.run(self._decide_all())

    def _decide_all(self) -> Steps:
        """Decide about one request after the other, so that each sees what the ones before it have changed. A request
        whose time is over is refused: clients that ask for more than can be decided would keep everybody waiting for
        what nobody waits for, and it would take effect long after they were told that it timed out."""
        assert self.replica is not None
        if self._leadership is None and self.replica.is_serving:
            yield from self._begin_leadership(self.replica)
        while waiting := self._asked or self._asked_by_clients:
            asked = waiting.popleft()
            if self._now() < asked.deadline:
                yield from self._decide(asked.request, asked.reply)
            else:
                late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller had too much to decide")
                asked.reply(late, 0)
            yield
        self._is_deciding = False

    def _begin_leadership(self, replica: Replica) -> Steps:
        """The controller's image is this node's, and what is in the log beyond it. Without all of that there is no
        leadership yet; the next request tries again."""
        ahead, epoch = self.image.copy(), replica.leader_epoch
        yield from replay(replica, ahead, lambda: replica.log.end_offset)
        if not replica.is_serving or replica.leader_epoch != epoch:
            return
        # The log is corrupt, or a decision is staged that the log has only when the loop iteration ends.
        if ahead.end_offset != replica.next_offset:
            return
        controller = Controller(
            ahead, self._config, self._rng, is_alive=self._is_alive, resources=self._resources
        )
        self._leadership = Leadership(controller, ahead, replica, epoch)
        logger.info("this node is the controller", epoch=replica.leader_epoch)

    def _decide(self, request: Request[Any], reply: Callable[[Any, int], None]) -> Steps:
        if self._leadership is None and self.replica is not None and self.replica.is_serving:
            # After a refused write, or in a new term.
            yield from self._begin_leadership(self.replica)
        leadership = self._leadership
        if leadership is None:
            _refuse(reply)
            return
        decision: Decision[Result | KafkaError]
        try:
            decision = yield from OPERATIONS[type(request)](leadership, request)
        except KafkaError as refused:
            # Its traceback refers to this frame, which refers to the decision: a cycle (broker.garbage), with all that
            # the request names in it.
            decision = Decision((), refused.with_traceback(None))
        if self._leadership is not leadership:
            _refuse(reply)  # what was decided rests on what may never be committed
        elif decision.records:
            yield from self._append(leadership, decision, reply)
        else:
            end_offset = leadership.replica.next_offset
            answer = partial(self._answer, reply, decision.response, end_offset)
            self._when_confirmed(leadership, end_offset, answer)

    def _answer(
        self,
        reply: Callable[[Any, int], None],
        response: Result | KafkaError,
        end_offset: int,
        code: ErrorCode,
    ) -> None:
        if code == ErrorCode.NONE:
            reply(response, end_offset)
        elif code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._leadership = None  # what it decided is in its image, and not in the log
            reply(KafkaError(code, "the controller's disk is full"), 0)
        else:
            reply(KafkaError(ErrorCode.NOT_CONTROLLER, "the controller has changed"), 0)

    def _when_committed(self, end_offset: int, answer: Callable[[ErrorCode], None]) -> None:
        assert self.replica is not None
        self.replica.waits.add_commit(end_offset, _Answers(answer), 0)

    def _when_confirmed(
        self, leadership: Leadership, end_offset: int, answer: Callable[[ErrorCode], None]
    ) -> None:
        """For an answer without records, or a refusal. A controller that was deposed and does not know it commits
        nothing, but it could still say what is there and what is not, from a stale image. So it waits for a liveness
        round. If a full disk has refused meanwhile what is in that image, there is no answer."""
        replica = leadership.replica

        def confirmed(keys: set[GroupKey]) -> None:
            is_current = self._leadership is leadership and replica.leader_epoch == leadership.epoch
            if replica.key in keys and is_current:
                self._when_committed(end_offset, answer)
            else:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._reads.confirm([replica], confirmed)

    def _append(
        self,
        leadership: Leadership,
        decision: Decision[Result | KafkaError],
        reply: Callable[[Any, int], None],
    ) -> Steps:
        """Append the decision's records, and replay them into the controller's image. Answers when the last of them is
        committed. NOT_CONTROLLER while the log takes no records: during a leadership transfer, or while a row is not
        durable."""
        replica, now_ms = leadership.replica, self._clock.now_ms()
        batches = list(_in_batches(decision.records))
        for number, records in enumerate(batches, 1):
            builder = BatchBuilder()
            for key, value in records:
                builder.add(NewRecord(key, value, now_ms))
                yield
            batch = builder.finish()
            if self._leadership is not leadership:
                _refuse(reply)
                return
            try:
                base_offset, end_offset = replica.append(parse_header(batch), batch)
            except KafkaError:
                _refuse(reply)
                return
            # Before the next step: the write may be refused when the loop iteration ends.
            answer: Callable[[ErrorCode], None] = self._part_committed
            if number == len(batches):
                answer = partial(self._answer, reply, decision.response, end_offset)
            self._when_committed(end_offset, answer)
            for position, (key, value) in enumerate(records):
                yield from leadership.image.replay_in_steps(
                    key, value, base_offset + position, leadership.epoch
                )
                yield

    def _part_committed(self, code: ErrorCode) -> None:
        """Of a decision that is several batches, one but the last."""
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._leadership = None


def _in_batches(records: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """Cut a decision into batches of at most MAX_BATCH_BYTES, or one record. A change of leaders may keep the first of
    them only, so the records of a decision are ordered such that it can be repeated then."""
    batch: list[KeyValue] = []
    size_bytes = 0
    for record in records:
        record_bytes = len(record.key) + len(record.value or b"")
        if batch and size_bytes + record_bytes > MAX_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += record_bytes
    if batch:
        yield batch


def _refuse(reply: Callable[[Any, int], None]) -> None:
    reply(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the controller"), 0)
