"""The four scenarios (coordinated-compaction.md, section 6): what is written before a replica goes away, while it is
away, and after the others have compacted the log; and what each replica then has to answer.

All four damage Apache Kafka 3.9 to 4.3, where each replica compacts its log by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from broker.cli.divergence.table import Reading, Table, TransactionalWriter


class Answer(NamedTuple):
    """What a replica answers when it leads, in words, and whether that is wrong."""

    text: str
    is_damaged: bool


class Scenario:
    """One of them, on a topic of its own."""

    number: ClassVar[int]
    title: ClassVar[str]
    #: What is written before the replica goes away, while it is away, and when the others have compacted that.
    written: ClassVar[tuple[str, ...]]

    def __init__(self, table: Table, transactional_id: str) -> None:
        self.table = table
        self._transactional_id = transactional_id
        self._writer: TransactionalWriter | None = None

    @property
    def writer(self) -> TransactionalWriter:
        if self._writer is None:
            self._writer = self.table.writer(self._transactional_id)
        return self._writer

    def write_before(self) -> None:
        raise NotImplementedError

    def write_meanwhile(self) -> None:
        raise NotImplementedError

    def write_later(self) -> None:
        """Nothing, unless a scenario needs it."""

    def answer(self, reading: Reading) -> Answer:
        """Of a replica when nothing is open any more: whoever does not read to the end waits for ever."""
        if reading.stopped_at < reading.end_offset:
            return Answer(f"stops at {reading.stopped_at} of {reading.end_offset}", True)
        return self.judge(reading.values)

    def judge(self, values: dict[bytes, bytes]) -> Answer:
        """`values`: of all keys that readers of committed data find."""
        raise NotImplementedError


class TombstoneResurrected(Scenario):
    """The others forget that k was deleted. The replica that was away never hears of it."""

    number = 1
    title = "A deleted key comes back"
    written = ("put k=V", "delete k")

    def write_before(self) -> None:
        self.table.write((b"k", b"V"))

    def write_meanwhile(self) -> None:
        self.table.write((b"k", None))

    def judge(self, values: dict[bytes, bytes]) -> Answer:
        value = values.get(b"k")
        return Answer("no k" if value is None else f"k={value.decode()}", value is not None)


class AbortedCommitted(Scenario):
    """The ABORT is gone. The next COMMIT of the producer commits what the replica that was away still has open."""

    number = 2
    title = "An aborted record is read"
    written = ("begin, put poison", "abort", "begin, put good, commit")

    def write_before(self) -> None:
        self.writer.begin((b"poison", b"aborted"))

    def write_meanwhile(self) -> None:
        self.writer.abort()

    def write_later(self) -> None:
        self.writer.begin((b"good", b"committed"))
        self.writer.commit()

    def judge(self, values: dict[bytes, bytes]) -> Answer:
        found = [key.decode() for key in (b"poison", b"good") if key in values]
        return Answer(" and ".join(found) or "nothing", found != ["good"])


class CommittedAborted(Scenario):
    """The COMMIT is gone. The next ABORT of the producer aborts what the replica that was away still has open."""

    number = 3
    title = "A commit is undone"
    written = ("put g=OLD, begin, delete g", "commit", "begin, put junk, abort")

    def write_before(self) -> None:
        self.table.write((b"g", b"OLD"))
        # Not a value: in Apache Kafka a COMMIT goes only when its transaction has no data left.
        self.writer.begin((b"g", None))

    def write_meanwhile(self) -> None:
        self.writer.commit()

    def write_later(self) -> None:
        self.writer.begin((b"junk", b"aborted"))
        self.writer.abort()

    def judge(self, values: dict[bytes, bytes]) -> Answer:
        found = [f"{key.decode()}={values[key].decode()}" for key in (b"g", b"junk") if key in values]
        return Answer(" and ".join(found) or "no g", bool(found))


class ReadersFrozen(Scenario):
    """The COMMIT is gone, and its producer never comes again. To the replica that was away the transaction is open for
    ever, so readers of committed data wait there for ever."""

    number = 4
    title = "Readers of committed data stop"
    written = ("begin, put k=1", "commit, put k=2", "put last")

    def write_before(self) -> None:
        self.writer.begin((b"k", b"1"))

    def write_meanwhile(self) -> None:
        self.writer.commit()
        self.table.write((b"k", b"2"))

    def write_later(self) -> None:
        self.table.write((b"last", b"plain"))

    def judge(self, values: dict[bytes, bytes]) -> Answer:
        is_whole = values.get(b"k") == b"2" and b"last" in values
        return Answer("reads to the end" if is_whole else "lacks k or last", not is_whole)


SCENARIOS: tuple[type[Scenario], ...] = (
    TombstoneResurrected,
    AbortedCommitted,
    CommittedAborted,
    ReadersFrozen,
)
