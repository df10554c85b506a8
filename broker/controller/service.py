"""`__cluster_metadata` at work: the image that everybody reads, and the controller while this node leads.

The image is a replay of committed records only. While this node leads, the controller decides against an image of its
own, which replays records at append; an answer leaves when the log end that it saw is committed (replication.md
section 9). Losing leadership throws that image away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog

from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.controller.operations import OPERATIONS, Leadership
from broker.environment import Clock
from broker.metadata.controller import Controller
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.metadata.image import Change, MetadataImage
from broker.metadata.records import BrokerRecord, KeyValue
from broker.metadata.requests import Decision
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from protocol.controller.request import Request, ResultT
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records
from storage.errors import CorruptLogError
from storage.log_types import GroupKey

logger = structlog.get_logger()

METADATA_KEY = GroupKey(METADATA_TOPIC_ID, 0)

#: A range to a follower holds a batch of this size, and a fetch by default.
MAX_BATCH_BYTES = 1 << 20


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
    )


class MetadataService:
    """Follows the metadata replica. `attach_replica` once it exists."""

    def __init__(
        self,
        config: ControllerConfig,
        quorum_voters: Sequence[int],
        resources: Resources,
        clock: Clock,
        rng: random.Random,
        reads: Reads,
        events: ReplicaEvents,
        is_alive: Callable[[BrokerRecord], bool],
    ) -> None:
        """`is_alive`: whether that very registration is connected now."""
        self._config = config
        self._quorum_voters = quorum_voters
        self._resources = resources
        self._clock = clock
        self._rng = rng
        self._reads = reads
        self._is_alive = is_alive
        self.image = MetadataImage()
        #: Called with each committed change, in log order.
        self.on_change: list[Callable[[Change], None]] = []
        #: Called when everything committed is replayed, after each step of the image.
        self.on_read: list[Callable[[], None]] = []
        self.replica: Replica | None = None
        #: Set while this node leads and serves, and the controller's image agrees with the log's end.
        self._leadership: Leadership | None = None
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
        if topic is None or key.partition >= len(topic.partitions):
            return ()
        return topic.partitions[key.partition].holders

    # -- the image ---------------------------------------------------------------------------------------

    def _commit_advanced(self, replica: Replica) -> None:
        """Replay what is newly committed, if it is the metadata's."""
        if replica is not self.replica:
            return
        try:
            has_moved = _replay(replica, self.image, replica.high_watermark, self._changed)
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
            return
        if has_moved:
            for read in self.on_read:
                read()

    def _changed(self, change: Change) -> None:
        for changed in self.on_change:
            changed(change)

    # -- the controller ----------------------------------------------------------------------------------

    def _role_changed(self, replica: Replica) -> None:
        if replica is self.replica:
            self._lead_if_serving(replica)

    def _lead_if_serving(self, replica: Replica) -> None:
        if replica.is_serving and self._leadership is None:
            ahead = MetadataImage()
            try:
                _replay(replica, ahead, replica.log.end_offset, lambda change: None)
            except CorruptLogError as error:
                replica.host.log_corrupt(replica, error)
                return
            controller = Controller(
                ahead, self._config, self._rng, is_alive=self._is_alive, resources=self._resources
            )
            self._leadership = Leadership(controller, ahead, replica)
            logger.info("this node is the controller", epoch=replica.leader_epoch)
        elif not replica.is_serving and self._leadership is not None:
            self._leadership = None
            logger.info("this node is the controller no longer", epoch=replica.leader_epoch)

    def execute(self, request: Request[ResultT], reply: Callable[[ResultT | KafkaError, int], None]) -> None:
        """Decide, append, answer when committed (`broker.controller.server.Execute`)."""
        if self.replica is not None:
            self._lead_if_serving(self.replica)  # after a refused write the image ahead is to be read anew
        leadership = self._leadership
        if leadership is None:
            reply(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the controller"), 0)
            return
        decision: Decision[ResultT | KafkaError]
        try:
            decision = OPERATIONS[type(request)](leadership, request)
        except KafkaError as refused:
            decision = Decision((), refused)
        try:
            end_offset = self._append(decision, leadership.image)
        except KafkaError as error:
            reply(error, 0)
            return

        def answer(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                reply(decision.response, end_offset)
            elif code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._leadership = None  # what it decided is in its image, and not in the log
                reply(KafkaError(code, "the controller's disk is full"), 0)
            else:
                reply(KafkaError(ErrorCode.NOT_CONTROLLER, "the controller has changed"), 0)

        if decision.records:
            self._when_committed(end_offset, answer)
        else:
            self._when_confirmed(end_offset, answer)

    def _when_committed(self, end_offset: int, answer: Callable[[ErrorCode], None]) -> None:
        assert self.replica is not None
        self.replica.waits.add_commit(end_offset, _Answers(answer), 0)

    def _when_confirmed(self, end_offset: int, answer: Callable[[ErrorCode], None]) -> None:
        """For an answer without records, or a refusal. A controller that was deposed and does not know it commits
        nothing, but it could still say what is there and what is not, from a stale image. So it waits for a liveness
        round."""
        replica = self.replica
        assert replica is not None
        epoch = replica.leader_epoch

        def confirmed(keys: set[GroupKey]) -> None:
            if replica.key in keys and replica.leader_epoch == epoch:
                self._when_committed(end_offset, answer)
            else:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._reads.confirm([replica], confirmed)

    def _append(self, decision: Decision[Any], ahead: MetadataImage) -> int:
        """Append the decision's records and replay them into the controller's image. Returns the log end they need.

        Raises KafkaError(NOT_CONTROLLER) while the log takes no records: during a leadership transfer, or while a row
        is not durable.
        """
        replica = self.replica
        assert replica is not None
        if not decision.records:
            return replica.next_offset
        end_offset = replica.next_offset
        for records in _in_batches(decision.records):
            batch = build_batch([NewRecord(key, value, self._clock.now_ms()) for key, value in records])
            header = next(iter_batches(memoryview(batch)))[1]
            try:
                base_offset, end_offset = replica.append(header, batch)
            except KafkaError as refused:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is changing") from refused
            for position, (key, value) in enumerate(records):
                ahead.replay(key, value, base_offset + position, replica.leader_epoch)
        return end_offset


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


def _replay(
    replica: Replica, image: MetadataImage, end_offset: int, changed: Callable[[Change], None]
) -> bool:
    """Replay [image end, end_offset) of the log into an image. Returns whether there was anything. Raises
    CorruptLogError before anything is believed of a corrupt batch."""
    start_offset = image.end_offset
    for header, batch in replica.log.checked_batches(start_offset, end_offset):
        for record in iter_records(batch):
            if record.offset < image.end_offset:
                continue
            assert record.key is not None, "metadata records have keys"
            value = None if record.value is None else bytes(record.value)
            change = image.replay(bytes(record.key), value, record.offset, header.leader_epoch)
            if change is not None:
                changed(change)
    return image.end_offset > start_offset
