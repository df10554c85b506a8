"""The specification of a run: what decides each of its records."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError
from pipeline.run_files import CONFIG

MAX_SEQUENCE_DIGITS = 12
#: Room for the longest sequence number, the checksum and some payload (`checked.py`).
MIN_RECORD_SIZE_BYTES = 65
#: Of config.json. A run of another form cannot be recomputed.
FORMAT = 3


class KeyDistribution(StrEnum):
    """Which of its keys a producer takes next."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    ROUND_ROBIN = "round-robin"
    NONE = "none"
    """Records have no key; the client chooses the partition."""


class ValueKind(StrEnum):
    """What is in the records."""

    CHECKED = "checked"
    """JSON with a checksum of its own."""
    SHOP = "shop"
    """Changes of a shop's tables, as Debezium writes them."""
    AUCTION = "auction"
    """NEXMark: people, auctions, bids."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that decides which records a run sends. Stored as `config.json` under "spec"."""

    topic: str
    """With several topics, what their names begin with."""
    records: int
    """Sequence numbers are 0 <= sequence < records."""
    seed: int
    record_size_bytes: int
    """Length of each checked value; keys and headers come on top. The other kinds have the size that they have."""
    keys: int
    """Distinct keys, shared out evenly over the producers."""
    producers: int
    """Producer p sends the sequences with sequence % producers == p, and owns its keys alone: order per key is
    a promise that Kafka makes to one producer, and means nothing for two."""
    rate_per_s: float | None
    """Records per second over all producers; None: as fast as the cluster takes them."""
    start_timestamp_ms: int
    """Record timestamps count from here. Near the present, since a broker deletes by record timestamp."""
    topics: int = 1
    """A producer sends to each of them in turn."""
    producers_per_task: int = 1
    """How many producers share a Spark task, and with it a processor."""
    key_distribution: KeyDistribution = KeyDistribution.UNIFORM
    zipf_theta: float = 0.99
    """Skew of `ZIPF`; 0.99 is YCSB's."""
    values: ValueKind = ValueKind.CHECKED
    random_share: float = 1.0
    """Of a checked value's payload; the rest is zeros, for codecs to find."""
    tombstone_share: float = 0.0
    """Of the checked records, those without a value."""
    tombstone_tail: int = 0
    """The last records that are all tombstones, of each key in turn."""
    transaction_records: int = 0
    """Records of each transaction of a producer; 0: no transactions."""
    abort_share: float = 0.0
    """Of the transactions, those that are aborted on purpose."""

    def __post_init__(self) -> None:
        if not 1 <= self.records < 10**MAX_SEQUENCE_DIGITS:
            raise ValueError(f"records must be 1 to 10^{MAX_SEQUENCE_DIGITS}, not {self.records}")
        if self.producers < 1:
            raise ValueError(f"producers must be at least 1, not {self.producers}")
        if self.keys < self.producers:
            raise ValueError(f"{self.producers} producers need at least as many keys, not {self.keys}")
        if self.record_size_bytes < MIN_RECORD_SIZE_BYTES:
            raise ValueError(f"record size must be at least {MIN_RECORD_SIZE_BYTES} bytes")
        if self.rate_per_s is not None and self.rate_per_s <= 0:
            raise ValueError(f"rate must be above 0, not {self.rate_per_s}")
        if self.topics < 1:
            raise ValueError(f"topics must be at least 1, not {self.topics}")
        if self.producers_per_task < 1 or self.producers % self.producers_per_task:
            raise ValueError(
                f"{self.producers} producers must be a multiple of those of a task, {self.producers_per_task}"
            )
        if not 0 < self.zipf_theta < 1:
            raise ValueError(f"theta of zipf must be above 0 and below 1, not {self.zipf_theta}")
        for name in ("random_share", "tombstone_share", "abort_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}")
        if self.tombstone_tail > self.records:
            raise ValueError(f"a tail must be at most all {self.records} records, not {self.tombstone_tail}")
        if self.values is not ValueKind.CHECKED and (self.tombstone_share or self.tombstone_tail):
            raise ValueError(f"{self.values} values have tombstones of their own: tombstones must be 0")
        if self.key_distribution is KeyDistribution.NONE and (self.tombstone_share or self.tombstone_tail):
            raise ValueError("a tombstone needs a key")

    @property
    def run_id(self) -> str:
        """Marks the run's records, so that another run on the same topic is told apart."""
        return f"{self.seed}-{self.start_timestamp_ms}"

    @property
    def tasks(self) -> int:
        """Spark tasks that send at once. Task t has the producers p with p % tasks == t."""
        return self.producers // self.producers_per_task

    @property
    def records_per_task(self) -> int:
        """Rounded up: the last tasks may have one record less."""
        return -(-self.records // self.tasks)

    @property
    def topic_names(self) -> list[str]:
        if self.topics == 1:
            return [self.topic]
        return [f"{self.topic}-{number}" for number in range(self.topics)]

    def topic_number(self, sequence: int) -> int:
        """Index into `topic_names` of a record's topic."""
        return sequence // self.producers % self.topics

    def transaction_number(self, sequence: int) -> int:
        """Which of its producer's transactions a record is in."""
        return sequence // self.producers // self.transaction_records

    def is_aborted(self, producer: int, transaction: int) -> bool:
        """Whether a producer aborts its transaction of this number."""
        # Steps of a prime spread the aborted ones evenly, and differently for each producer and seed.
        return (transaction * 619 + producer * 389 + self.seed) % 1000 < self.abort_share * 1000

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunSpec:
        kinds = {
            "key_distribution": KeyDistribution(fields["key_distribution"]),
            "values": ValueKind(fields["values"]),
        }
        return cls(**fields | kinds)

    @classmethod
    def of_run(cls, run: Path) -> RunSpec:
        """Read the specification of a run's folder. Raises PipelineError for one of another version or command."""
        config = json.loads((run / CONFIG).read_text())
        if config.get("format") != FORMAT:
            raise PipelineError(
                f"{run} was not written by `load` or `run` of this version, so its records cannot be recomputed"
            )
        return cls.from_json(config["spec"])
