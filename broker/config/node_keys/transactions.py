"""Transactions and the transactional ids that the coordinators of this node keep."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import INT32_MAX, integer, long, setting

_DAY_MS = 24 * 60 * 60_000


@dataclass(frozen=True, kw_only=True)
class TransactionKeys:
    transaction_topic_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        integer(1),
        "50",
        "How many partitions __transaction_state is created with. Each transactional id has its place in one for ever.",
    )
    transaction_topic_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        integer(1, 32767),
        "3",
        """How many replicas __transaction_state is created with. Not set: three, or one for each broker if there are
        fewer.""",
    )
    transaction_topic_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        integer(1024),
        str(100 << 20),
        "The segment.bytes that __transaction_state is created with.",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        integer(1, INT32_MAX),
        str(15 * 60_000),
        "The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        integer(1, INT32_MAX),
        str(7 * _DAY_MS),
        "How long a transactional id is kept after its last transaction.",
    )
    transactional_id_check_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        integer(1, INT32_MAX),
        "3600000",
        "How often transactional ids that have expired are looked for.",
    )
    max_transaction_bytes: int = setting(
        "varve.max.transaction.bytes",
        long(0),
        str(32 << 20),
        """How much memory transactional ids may take on this node. Above it, new ids and further partitions of
        transactions are refused (POLICY_VIOLATION, or TRANSACTION_ABORTABLE where that would end a producer); what is
        open can be ended. An id counts for 800 bytes and its length, a partition of an open transaction for 160.""",
    )
