"""What could be answered now about the partitions that a client fetches. A scan itself reads no records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.fetch_sessions import TOPIC_IDS_VERSION, FetchTarget, FetchTargets
from broker.serving.steps import Steps
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from storage.log_types import LogSlice

READ_COMMITTED = 1
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchScan:
    """The results of the last scan of one request. A scan visits the targets that are due, and those only."""

    def __init__(self, context: Context, request: Request, body: FetchRequest, targets: FetchTargets) -> None:
        self._context = context
        self._api_version = request.api_version
        self._targets = targets
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._max_bytes = min(body.max_bytes, context.config.fetch_max_bytes)
        if (
            context.quotas.limits_fetch
            and (bound := context.quotas.fetch_bound(request.client_id)) is not None
        ):
            self._max_bytes = min(self._max_bytes, bound)
        self._min_bytes = body.min_bytes
        self._allowed_bytes = 0
        self.size_bytes = 0
        #: Bytes that count for `min_bytes`. If a limit of the answer cuts a partition off, the whole limit counts.
        self._readable_bytes = 0
        self._has_error = False
        self.leaders: list[int] = []
        #: Partitions that would be answered OFFSET_OUT_OF_RANGE.
        self.out_of_range: list[FetchTarget] = []

    @property
    def is_enough(self) -> bool:
        """The answer need not wait."""
        enough_bytes = min(self._min_bytes, self._allowed_bytes)
        return self._has_error or self._readable_bytes >= enough_bytes or not self._targets

    def scan(self) -> None:
        for target in self._begin():
            self._look_at(target)

    def scan_in_steps(self) -> Steps:
        """Targets that have nothing are watched from their step on. So some may be due again when the scan ends."""
        targets = self._targets
        for target in self._begin():
            if not targets:
                return  # the session was closed meanwhile
            self._look_at(target)
            targets.watch_early(target)
            yield

    def _begin(self) -> dict[FetchTarget, None]:
        self._allowed_bytes = min(self._max_bytes, self._context.connections.answers.answer_bytes)
        self.size_bytes = 0
        self._readable_bytes = 0
        self._has_error = False
        self.leaders = []
        self.out_of_range = []
        # Another dict, because a scan may change a partition, which makes it due again.
        due, self._targets.due = self._targets.due, {}
        self._targets.scanned = due
        return due

    def _look_at(self, target: FetchTarget) -> None:
        try:
            self._scan_target(target)
        except KafkaError as error:
            self._refuse(target, error)

    def _scan_target(self, target: FetchTarget) -> None:
        targets, wanted = self._targets, target.wanted
        replica = target.replica
        if replica is None or not replica.is_open:
            target.replica = None
            replica = target.replica = self._find(target)
        replica.check_leader_epoch(wanted.current_leader_epoch)
        offset = wanted.fetch_offset
        high_watermark, last_stable_offset = replica.high_watermark, replica.last_stable_offset
        start_offset = replica.log_start_offset
        if offset < start_offset or offset > replica.log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        diverging = self._divergence(replica, wanted) if wanted.last_fetched_epoch >= 0 else None
        bound = last_stable_offset if self._is_committed else high_watermark
        aborted: list[AbortedTransaction] = []
        target.part = None
        if diverging is not None:
            self._has_error = True
            targets.due[target] = None
        elif offset < bound and self._read(target, replica, bound, aborted):
            targets.due[target] = None
        elif target.reported == (high_watermark, last_stable_offset, start_offset):
            targets.to_report.pop(target, None)
            return
        data = target.answer = PartitionData(partition_index=wanted.partition)
        data.high_watermark = high_watermark
        data.last_stable_offset = last_stable_offset
        data.log_start_offset = start_offset
        data.aborted_transactions = aborted if self._is_committed else None
        data.diverging_epoch = diverging
        targets.to_report[target] = None

    def _find(self, target: FetchTarget) -> Replica:
        if self._api_version >= TOPIC_IDS_VERSION:
            return self._context.view.replica_of_id(target.topic_id, target.wanted.partition)
        return self._context.view.replica_named(target.topic, target.wanted.partition)

    def _read(
        self, target: FetchTarget, replica: Replica, bound: int, aborted: list[AbortedTransaction]
    ) -> bool:
        """Find the records that the answer has room for, and of these the aborted transactions. False: it is not known
        yet what is aborted. The replica wakes the target when it is."""
        wanted = target.wanted
        left = self._allowed_bytes - self.size_bytes
        if left <= 0 and self.size_bytes:
            return True
        limit_bytes = min(wanted.partition_max_bytes, left)
        part = self._slice(replica, wanted.fetch_offset, bound, limit_bytes)
        if part is not None and self._is_committed:
            found = self._context.aborted_loads.aborted_between(
                replica, wanted.fetch_offset, part.next_offset
            )
            if found is None:
                return False
            aborted += [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in found
            ]
        size_bytes = 0 if part is None else part.size_bytes
        is_cut = part is None or part.next_offset < bound
        self.size_bytes += size_bytes
        self._readable_bytes += max(size_bytes, limit_bytes) if is_cut else size_bytes
        target.part = part
        return True

    def _slice(self, replica: Replica, offset: int, bound: int, limit_bytes: int) -> LogSlice | None:
        """The whole batches from the offset on that are no larger together. None: not even the first one fits."""
        try:
            return replica.log.read(
                offset, limit_bytes, below_offset=bound, at_least_one=self.size_bytes == 0
            )
        except CorruptLogError as error:
            self._context.replicas.log_corrupt(replica, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _divergence(self, replica: Replica, wanted: FetchPartition) -> EpochEndOffset | None:
        """None if the client's last fetched epoch is in this log and reaches up to its fetch offset. Otherwise the
        epoch and offset where the logs diverge (KIP-320, KIP-595)."""
        epoch, end_offset = replica.log.lineage.epoch_end_offset(
            wanted.last_fetched_epoch, replica.log.end_offset
        )
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def _refuse(self, target: FetchTarget, error: KafkaError) -> None:
        """Answer an error for a partition. It stays due, so that each scan visits it."""
        self._has_error = True
        version, partition = self._api_version, target.wanted.partition
        # Its watermarks keep their default of -1.
        data = PartitionData(partition_index=partition, error_code=error.code)
        target.answer, target.part = data, None
        self._targets.to_report[target] = None
        self._targets.due[target] = None
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.out_of_range.append(target)
        elif error.code is ErrorCode.KAFKA_STORAGE_ERROR and version < 6:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # these versions do not know it
        elif error.code in _LEADER_ERRORS and version >= 12:
            name = self._context.view.topic_name(target.topic, target.topic_id)
            leader, epoch = self._context.view.leader_of(name, partition)
            if leader >= 0:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if version >= 16 and leader not in self.leaders:
                    self.leaders.append(leader)
