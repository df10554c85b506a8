"""Why a partition is not compacted, or does not shrink: causes in plain words, the most important one first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from broker.cli.compaction_state import PartitionState, Pin, ReplicaState, dirty_ratio
from broker.cli.times import iso
from broker.cli.txn_admin import OpenTransaction
from broker.replication.watermarks.blocked_by import BlockedBy
from protocol.messages.describe_compaction import HeldRecords, PartitionCompaction

#: A pass that leaves more than this part of the records is one of keys that hardly repeat.
_UNIQUE_PART = 0.9
_LARGE_RECORD_BYTES = 16 << 10


@dataclass(frozen=True)
class Cause:
    code: str
    """For programs."""
    text: str
    setting: str | None = None
    """NAME=VALUE as it is now: what decides this."""
    command: str | None = None
    """What would change it."""


@dataclass(frozen=True)
class Known:
    """What the causes are found from."""

    state: PartitionState
    settings: Mapping[str, str]
    """Of the topic, and those of compaction of the broker that leads."""
    transactions: Sequence[OpenTransaction]
    """Open in the partition, the oldest first."""
    now_ms: int

    @property
    def place(self) -> str:
        return f"{self.state.topic} --partitions {self.state.partition}"

    @property
    def abort_command(self) -> str:
        """What ends the first one of the open transactions, or lists those of the cluster if none is known here."""
        if not self.transactions:
            return "varve txn list --state Ongoing"
        return (
            f"varve txn abort --topic {self.state.topic} --partition {self.state.partition}"
            f" --start-offset {self.transactions[0].start_offset} --force"
        )

    def setting(self, name: str) -> str:
        return f"{name}={self.settings.get(name, '?')}"


def log_causes(known: Known) -> list[Cause]:
    own = known.state.main.own
    if own is None:
        error = known.state.main.error
        return [
            Cause(
                "unavailable",
                f"No broker tells how its replica stands: {error}.",
                None,
                "varve cluster health",
            )
        ]
    if BlockedBy(own.blocked_by) is BlockedBy.POLICY:
        return [blocked(known, known.state.main)]
    return [
        *_on_other_replicas(known),
        *_why_no_pass(known, own),
        *_why_not_further(known, own),
        *held_causes(known, own),
        *_why_no_smaller(known, own),
    ]


def _why_no_pass(known: Known, own: PartitionCompaction) -> Iterator[Cause]:
    if own.is_running:
        yield Cause("running", "A pass is under way.")
    elif BlockedBy(own.blocked_by) is BlockedBy.NOTHING:
        yield Cause(
            "due",
            "A pass is due. It begins with the next round of the worker.",
            known.setting("varve.compaction.interval.ms"),
            f"varve topic compact {known.place} --wait",
        )
    elif BlockedBy(own.blocked_by) is not BlockedBy.NOTHING_DIRTY:
        yield blocked(known, known.state.main)


def _why_not_further(known: Known, own: PartitionCompaction) -> Iterator[Cause]:
    if own.is_map_full:
        yield Cause(
            "map_full",
            "The key map of the last pass was full, so it stopped early. The next pass goes on from there.",
            known.setting("log.cleaner.dedupe.buffer.size"),
            "varve config alter --broker-defaults --add-config log.cleaner.dedupe.buffer.size=268435456",
        )
    limit = BlockedBy(own.limit)
    if limit not in (BlockedBy.NOTHING, BlockedBy.NOTHING_DIRTY, BlockedBy(own.blocked_by)):
        yield _explained(known, limit, own)


def _on_other_replicas(known: Known) -> Iterator[Cause]:
    """Each replica is compacted by itself, so one of them may be in trouble."""
    for replica in known.state.replicas:
        if replica is not known.state.main and replica.blocked_by in (
            BlockedBy.FAILED,
            BlockedBy.CLEANER_OFF,
            BlockedBy.UNCOMMITTED,
        ):
            yield blocked(known, replica)


def _why_no_smaller(known: Known, own: PartitionCompaction) -> Iterator[Cause]:
    if own.records_before <= 0 or own.clean_bytes <= own.size_bytes / 2:
        return
    if own.records_after >= _UNIQUE_PART * own.records_before:
        yield Cause(
            "unique_keys",
            f"The last pass kept {own.records_after:,} of {own.records_before:,} records: hardly a key is written"
            " twice. Compaction cannot shrink that. Deletions (records without a value) or retention do.",
            known.setting("cleanup.policy"),
            f"varve topic alter {known.state.topic} --config cleanup.policy=compact,delete --config retention.ms=...",
        )
    if own.records_after > 0 and own.clean_bytes / own.records_after > _LARGE_RECORD_BYTES:
        size_kib = own.clean_bytes // own.records_after // 1024
        yield Cause(
            "large_values",
            f"What is compacted has {size_kib:,} KiB for each record. Only smaller values or compression shrink that.",
            known.setting("compression.type"),
        )


# -- one reason


def blocked(known: Known, replica: ReplicaState) -> Cause:
    """Why no pass over this replica's log is due."""
    return _explained(known, replica.blocked_by, replica.own, replica.broker)


def _explained(
    known: Known, reason: BlockedBy, own: PartitionCompaction | None, broker: int | None = None
) -> Cause:
    topic = known.state.topic
    now = f"varve topic compact {known.place} --wait"
    code = reason.name.lower()
    who = "" if broker in (None, known.state.main.broker) else f"On broker {broker}: "
    match reason:
        case BlockedBy.POLICY:
            text = "The topic is not compacted, because its cleanup.policy does not say so."
            command = f"varve topic alter {topic} --config cleanup.policy=compact"
            return Cause(code, text, known.setting("cleanup.policy"), command)
        case BlockedBy.ACTIVE_SEGMENT | BlockedBy.NOTHING_DIRTY if own is not None:
            return Cause(
                "active_segment",
                f"{who}Records from offset {own.active_segment_offset} on lie in the active segment, which is never"
                " compacted. It ends when it is full, or when its first record is old enough.",
                f"{known.setting('segment.ms')}, {known.setting('segment.bytes')}",
                now,
            )
        case BlockedBy.HIGH_WATERMARK if own is not None:
            return Cause(
                code,
                f"{who}The next segment has records that are not committed: the log ends at {own.log_end_offset}, and"
                f" the high watermark is {own.high_watermark}.",
                None,
                f"varve topic describe {topic}",
            )
        case BlockedBy.LAST_STABLE_OFFSET:
            return _open_transaction(known, who)
        case BlockedBy.MIN_LAG:
            text = f"{who}The next segment has records that are younger than min.compaction.lag.ms."
            command = f"varve topic alter {topic} --config min.compaction.lag.ms=0"
            return Cause(code, text, known.setting("min.compaction.lag.ms"), command)
        case BlockedBy.DIRTY_RATIO if own is not None:
            text = (
                f"{who}{dirty_ratio(own):.2f} of what may be compacted is dirty ({own.dirty_bytes:,} of"
                f" {own.clean_bytes + own.dirty_bytes:,} bytes). A pass begins when it is more than"
                " min.cleanable.dirty.ratio, or when a dirty record is older than max.compaction.lag.ms."
            )
            return Cause(code, text, known.setting("min.cleanable.dirty.ratio"), now)
        case BlockedBy.CLEANER_OFF:
            at = broker if broker is not None else known.state.main.broker
            command = f"set log.cleaner.enable=true on broker {at}, and start it again"
            return Cause(code, f"Broker {at} does not compact.", "log.cleaner.enable=false", command)
        case BlockedBy.FAILED if own is not None:
            again = iso(own.retry_at_ms)
            text = f"{who}The last pass failed: {own.failure}. It is tried again at {again}."
            return Cause("uncleanable", text, known.setting("log.cleaner.backoff.ms"), now)
        case BlockedBy.UNCOMMITTED:
            text = (
                f"{who}The replica was started lately, and does not know yet that what it has compacted is committed."
                " It learns that as soon as the partition has a leader."
            )
            return Cause(code, text, None, f"varve topic describe {topic}")
    return Cause(code, f"{who}{reason.words}")


def _open_transaction(known: Known, who: str) -> Cause:
    text = f"{who}A transaction in the next segment has not ended."
    if known.transactions:
        first = known.transactions[0]
        text = (
            f"{who}A transaction has not ended: that of producer {first.producer_id}, from offset"
            f" {first.start_offset} on, last write {iso(first.last_timestamp_ms)}. Nothing from there on is compacted"
            " until it ends, at the latest after the producer's transaction.timeout.ms."
        )
    return Cause("open_transaction", text, None, known.abort_command)


# -- what a pass left for later


def held_causes(known: Known, own: PartitionCompaction) -> Iterator[Cause]:
    """Why tombstones and markers are still there, where any are."""
    for name, held, bound, at in (
        ("tombstones", own.tombstones, "MTRO", own.max_tombstone_remove_offset),
        ("transaction markers", own.markers, "MXRO", own.max_transaction_remove_offset),
    ):
        if held.first_horizon_ms < 0:
            continue
        if held.first_end_offset > at:
            yield from _pinned(known, name, held, bound, at)
        elif held.first_horizon_ms > known.now_ms:
            yield Cause(
                "delete_horizon",
                f"{_counted(held, name)} for consumers that are behind. The first may go at"
                f" {iso(held.first_horizon_ms)}.",
                known.setting("delete.retention.ms"),
            )


def _pinned(known: Known, name: str, held: HeldRecords, bound: str, at: int) -> Iterator[Cause]:
    pins = [pin for pin in known.state.pins() if pin.bound == bound]
    reached = "no offset yet" if at < 0 else f"offset {at}"
    text = f"{_counted(held, name)} until all replicas are compacted up to there ({bound}: {reached})."
    if not pins:
        yield Cause("waits_for_replicas", text, None, f"varve topic compact {known.place} --wait")
    for pin in pins:
        setting, command = pin_advice(known, pin)
        yield Cause(
            "pinned",
            f"{text} Broker {pin.broker} is behind since {iso(pin.since_ms)}: {pin.reason.words}.",
            setting,
            command,
        )


def pin_advice(known: Known, pin: Pin) -> tuple[str | None, str | None]:
    """The setting and the command that would free a pinned bound."""
    replica = next(each for each in known.state.replicas if each.broker == pin.broker)
    if pin.reason is BlockedBy.OFFLINE:
        command = f"start broker {pin.broker}, or move its replicas: varve cluster reassign"
        return known.setting("varve.compaction.max.pin.ms"), command
    if pin.reason in (BlockedBy.UNREPORTED, BlockedBy.BEHIND, BlockedBy.STALE_LOG):
        return None, "varve cluster health --watch"
    if pin.reason is BlockedBy.NOTHING:
        return known.setting("varve.compaction.interval.ms"), f"varve topic compact {known.place} --wait"
    cause = _explained(known, pin.reason, replica.own, pin.broker)
    return cause.setting, cause.command


def _counted(held: HeldRecords, name: str) -> str:
    if held.count < 0:
        return f"Some {name} stay"
    if held.count == 1:
        return f"1 {name.removesuffix('s')} ({held.size_bytes:,} bytes) stays"
    return f"{held.count:,} {name} ({held.size_bytes:,} bytes) stay"
