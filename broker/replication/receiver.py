"""Ranges of the leader's log as they reach a follower: checked, then written, before the group speaks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.replication import wire
from broker.replication.ranges import Batches, check_range, corrupt_range
from protocol import peer
from protocol.errors import KafkaError
from raft.types import ReplicaId
from storage.disk import DiskFullError

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()


class RangeReceiver:
    """Of one replica, whose log may be replaced in the meantime."""

    __slots__ = ("_replica",)

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def received(self, sender: ReplicaId, message: peer.Append) -> bool:
        """Everything is checked before the group hears of it (replication.md section 2). False: the range is damaged,
        or there is no room for it; nothing else that the message says counts then."""
        replica = self._replica
        host, group = replica.host, replica.group
        try:
            batches = check_range(message)
        except KafkaError as error:
            logger.warning(
                "range refused",
                topic=replica.topic,
                partition=replica.partition,
                leader=sender.node_id,
                reason=error.message,
            )
            host.send(sender, corrupt_range(replica, message))
            return False
        rows = [wire.row_from_wire(row) for row in message.rows] if message.rows else []
        known_commit = group.commit_end
        out = group.append_received(
            sender,
            message.term,
            message.start_index,
            message.prev_term,
            message.to_index,
            rows,
            message.commit_end,
            host.now(),
        )
        if out.hard_state is not None:
            host.persist_vote(replica, out.hard_state)
            out.hard_state = None
        if out.truncate_to is not None:
            self._truncate(out.truncate_to, known_commit)
            out.truncate_to = None
        if out.write_from is not None and not self._write(batches):
            group.write_failed(replica.log.end_index, known_commit)
            replica.settle(out)
            return False
        replica.apply(out)
        return True

    def _write(self, batches: Batches) -> bool:
        """Append those batches of the range that the log lacks. False: the disk is full, nothing was written."""
        replica = self._replica
        headers, views = batches.fresh(replica.log.end_offset)
        if not headers:
            return True
        try:
            if replica.must_leave_reserve:
                raise DiskFullError("less than log.min.free.bytes is left")
            replica.log.append_batches(views, headers, allow_holes=True)
        except DiskFullError as error:
            logger.error(
                "follower stops: disk full",
                topic=replica.topic,
                partition=replica.partition,
                error=str(error),
            )
            replica.host.lacks_space(replica)
            return False
        replica.log.start_writeback()
        replica.log.drop_cached()  # clients read from leaders
        for header, view in zip(headers, views, strict=True):
            replica.producers.record_stored(view, header)
        replica.next_offset = replica.log.end_offset
        replica.log_grew(len(headers))
        return True

    def _truncate(self, to_index: int, known_commit: int) -> None:
        replica = self._replica
        logger.info("truncating", topic=replica.topic, partition=replica.partition, to_index=to_index)
        replica.host.truncate(replica, to_index, known_commit)
        replica.reload()
