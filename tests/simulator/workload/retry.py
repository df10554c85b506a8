"""What a client does after an error."""

from __future__ import annotations

from protocol.errors import ErrorCode

RETRY_S = 0.05
#: Errors after which a producer asks for the leader again and sends the same batch again.
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    }
)
