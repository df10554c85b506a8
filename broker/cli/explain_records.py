"""What becomes of the records of a key, and why readers of committed data do not see an offset. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from broker.cli.explain_log import Cause, Known
from broker.cli.times import iso
from broker.replication.watermarks.blocked_by import BlockedBy
from protocol.messages.describe_compaction import PartitionCompaction
from protocol.records.batch import ATTR_DELETE_HORIZON, BatchHeader, parse_header
from protocol.records.control import read_marker
from protocol.records.record import Record, iter_records


class Outcome(Enum):
    """Of the transaction that a record was written in."""

    COMMITTED = "committed"
    """Or written without a transaction. Compaction makes no difference between the two."""
    ABORTED = "aborted"
    OPEN = "open"


@dataclass
class Found:
    """One record."""

    partition: int
    offset: int
    timestamp_ms: int
    is_tombstone: bool
    value_bytes: int
    outcome: Outcome
    horizon_ms: int
    """Not before then does compaction remove the tombstone. -1: it has not come by yet."""
    fate: str = ""


def records_of_key(partition: int, batches: Iterable[memoryview], key: bytes) -> list[Found]:
    """By offset, with the outcome of their transactions. `batches`: of the whole partition."""
    found: list[Found] = []
    #: Of transactions whose marker is yet to come, by producer.
    pending: dict[int, list[Found]] = {}
    for batch in batches:
        header = parse_header(batch)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                for each in pending.pop(header.producer_id, []):
                    each.outcome = Outcome.COMMITTED if marker.is_commit else Outcome.ABORTED
            continue
        for record in iter_records(batch):
            if record.key is not None and bytes(record.key) == key:
                each = _found(partition, header, record)
                found.append(each)
                if header.is_transactional:
                    each.outcome = Outcome.OPEN
                    pending.setdefault(header.producer_id, []).append(each)
    return found


def _found(partition: int, header: BatchHeader, record: Record) -> Found:
    value = record.value
    return Found(
        partition,
        record.offset,
        record.timestamp_ms,
        value is None,
        0 if value is None else len(value),
        Outcome.COMMITTED,
        header.base_timestamp if header.attributes & ATTR_DELETE_HORIZON else -1,
    )


def tell_fates(found: list[Found], known: Known) -> None:
    """Sets `fate` of the records of one key in one partition."""
    own = known.state.main.own
    newest = max((each.offset for each in found if each.outcome is Outcome.COMMITTED), default=None)
    for each in found:
        if each.outcome is Outcome.OPEN:
            each.fate = "its transaction has not ended: varve txn list --state Ongoing"
        elif own is None or BlockedBy(own.blocked_by) is BlockedBy.POLICY:
            each.fate = "stays until retention takes it: the topic is not compacted"
        elif each.outcome is Outcome.ABORTED:
            each.fate = f"its transaction was aborted; it goes {_when(each.offset, own)}"
        elif each.offset != newest:
            assert newest is not None
            each.fate = f"offset {newest} is newer; it goes {_when(max(each.offset, newest), own)}"
        elif each.is_tombstone:
            each.fate = _fate_of_tombstone(each, own, known)
        else:
            each.fate = "the newest one: it stays"


def _when(offset: int, own: PartitionCompaction) -> str:
    """With which pass a record goes that nobody needs, if a pass has to reach this offset."""
    if offset >= own.first_uncleanable_offset:
        return f"once offset {offset} may be compacted, which waits for: {BlockedBy(own.limit).words}"
    reason = BlockedBy(own.blocked_by)
    if reason in (BlockedBy.NOTHING, BlockedBy.NOTHING_DIRTY):
        return "with the next pass"
    return f"with the next pass, which waits for: {reason.words}"


def _fate_of_tombstone(found: Found, own: PartitionCompaction, known: Known) -> str:
    retention = known.setting("delete.retention.ms")
    if found.horizon_ms < 0:
        when = _when(found.offset, own)
        return f"a deletion; {retention} counts from the pass that comes by, and it comes {when.removeprefix('once ')}"
    if found.offset >= own.max_tombstone_remove_offset:
        pins = [pin for pin in known.state.pins() if pin.bound == "MTRO"]
        who = "; ".join(f"broker {pin.broker} ({pin.reason.words}) since {iso(pin.since_ms)}" for pin in pins)
        return f"a deletion; it stays until every replica is compacted up to it. Behind is {who or 'one of them'}"
    if found.horizon_ms > known.now_ms:
        return f"a deletion; it stays for slow consumers until {iso(found.horizon_ms)} ({retention})"
    return "a deletion; it goes with the next pass"


# -- one offset


def offset_causes(known: Known, offset: int, batches: Iterable[memoryview]) -> list[Cause]:
    """Why readers of committed data see no record at this offset, or that they see it. `batches`: from this offset to
    the end of what is committed."""
    own = known.state.main.own
    if own is None:
        return [Cause("unavailable", f"The leader does not answer: {known.state.main.error}.")]
    if offset < own.log_start_offset:
        return [
            Cause(
                "deleted",
                f"The log starts at offset {own.log_start_offset}: retention or DeleteRecords took it.",
                f"{known.setting('retention.ms')}, {known.setting('retention.bytes')}",
            )
        ]
    if offset >= own.log_end_offset:
        return [
            Cause(
                "not_written", f"The log ends at offset {own.log_end_offset}: nothing was written there yet."
            )
        ]
    if offset >= own.high_watermark:
        text = f"It is not committed: the high watermark is {own.high_watermark}. A majority of replicas lacks it."
        return [Cause("not_committed", text, None, f"varve topic describe {known.state.topic}")]
    causes = list(_what_is_there(known, offset, own, batches))
    return causes or [Cause("visible", "Readers of committed data see the record.")]


def _what_is_there(
    known: Known, offset: int, own: PartitionCompaction, batches: Iterable[memoryview]
) -> Iterator[Cause]:
    following = iter(batches)
    batch = next(following, None)
    header = None if batch is None else parse_header(batch)
    if (
        batch is None
        or header is None
        or header.base_offset > offset
        or not _has_record(batch, header, offset)
    ):
        yield Cause(
            "compacted",
            f"No record is left at offset {offset}: compaction has removed it. Its key has a newer record or was"
            " deleted, or its transaction was aborted or is long over.",
        )
        return
    if header.is_control:
        marker = read_marker(batch)
        kind = "removed by compaction" if marker is None else "a COMMIT" if marker.is_commit else "an ABORT"
        yield Cause(
            "control",
            f"It is no record but the end of a transaction of producer {header.producer_id}: {kind}.",
        )
        return
    if offset >= own.last_stable_offset:
        yield _waits(known, own)
    if header.is_transactional and _is_aborted(header.producer_id, following):
        yield Cause("aborted", f"Its transaction, of producer {header.producer_id}, was aborted.")


def _has_record(batch: memoryview, header: BatchHeader, offset: int) -> bool:
    return header.is_control or any(record.offset == offset for record in iter_records(batch))


def _is_aborted(producer_id: int, following: Iterator[memoryview]) -> bool:
    for batch in following:
        header = parse_header(batch)
        if header.is_control and header.producer_id == producer_id:
            marker = read_marker(batch)
            return marker is not None and not marker.is_commit
    return False


def _waits(known: Known, own: PartitionCompaction) -> Cause:
    text = f"Readers of committed data stop at the last stable offset, {own.last_stable_offset}: a transaction is open."
    if not known.transactions:
        return Cause("open_transaction", text, None, known.abort_command)
    first = known.transactions[0]
    return Cause(
        "open_transaction",
        f"{text} It is that of producer {first.producer_id}, last write {iso(first.last_timestamp_ms)}.",
        "transaction.timeout.ms of the producer",
        known.abort_command,
    )
