"""Workloads as data: YAML with the field names of the OpenMessaging benchmark, and some of our own.

A field that is not known is an error, since a benchmark of something else than was asked for is worse than none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import PipelineError
from pipeline.workloads.spec import KeyDistribution, RunSpec, ValueKind

LIBRARY = Path(__file__).parent / "library"
_SUFFIX = ".yaml"

#: OpenMessaging's names, then those of ours that it has not.
_KEY_DISTRIBUTORS = {
    "NO_KEY": KeyDistribution.NONE,
    "KEY_ROUND_ROBIN": KeyDistribution.ROUND_ROBIN,
    "RANDOM_NANO": KeyDistribution.UNIFORM,
    "ZIPF": KeyDistribution.ZIPF,
}
_VALUES = {kind.value: kind for kind in ValueKind}
#: Each field, its type, and its value where a file does not say.
_FIELDS: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "name": ((str,), None),
    "exercises": ((str,), ""),
    "topics": ((int,), 1),
    "partitionsPerTopic": ((int,), 3),
    "messageSize": ((int,), 1024),
    "useRandomizedPayloads": ((bool,), True),
    "randomBytesRatio": ((int, float), 1.0),
    "keyDistributor": ((str,), "RANDOM_NANO"),
    "producersPerTopic": ((int,), 2),
    "producerRate": ((int, float), 0),
    "testDurationMinutes": ((int, float), None),
    "warmupDurationMinutes": ((int, float), 0),
    "consumerBacklogSizeGB": ((int, float), 0),
    # Ours.
    "records": ((int,), None),
    "keys": ((int,), 1000),
    "zipfTheta": ((int, float), 0.99),
    "values": ((str,), "checked"),
    "tombstones": ((int, float), 0.0),
    "tombstoneTail": ((int,), 0),
    "transactionRecords": ((int,), 0),
    "abortedTransactions": ((int, float), 0.0),
    "producersPerTask": ((int,), 1),
    "purge": ((bool,), False),
    "compression": ((str,), "none"),
    "topicConfig": ((dict,), None),
}
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Workload:
    """What a file says."""

    name: str
    exercises: str
    """What it is good for, in a few words."""
    partitions: int
    """Of each topic."""
    compression: str
    warm_up_s: int
    topic_config: Mapping[str, str]
    backlog_bytes: int
    """Of values, that are there before the run and are read during it; 0: none."""
    is_purged: bool
    """Whether a stream reads the run, and deletes what it has read."""
    spec_fields: Mapping[str, Any]
    """Of `RunSpec`, but for what each run decides: topic, seed, start."""

    def spec(
        self,
        topic: str,
        seed: int,
        start_timestamp_ms: int,
        *,
        scale: float = 1.0,
        rate_per_s: float | None = None,
    ) -> RunSpec:
        """A run of it. `scale`: so many times its records and keys. `rate_per_s`: instead of its own. Raises
        ValueError."""
        fields = dict(self.spec_fields)
        for name in ("records", "tombstone_tail"):
            fields[name] = round(fields[name] * scale)
        fields["keys"] = max(round(fields["keys"] * scale), fields["producers"])
        if rate_per_s is not None:
            fields["rate_per_s"] = rate_per_s
        return RunSpec(topic=topic, seed=seed, start_timestamp_ms=start_timestamp_ms, **fields)

    @property
    def shape(self) -> str:
        """Records, sizes and topics in one line."""
        fields = self.spec_fields
        size = (
            f"{fields['record_size_bytes']:,} B"
            if fields["values"] is ValueKind.CHECKED
            else fields["values"]
        )
        rate = f"{fields['rate_per_s']:,.0f}/s" if fields["rate_per_s"] else "as fast as it goes"
        topics = f"{fields['topics']} x {self.partitions}" if fields["topics"] > 1 else str(self.partitions)
        return f"{fields['records']:,} x {size}, {rate}, {fields['producers']} producers, {topics} partitions"


def names() -> list[str]:
    """Of the workloads that come with the package."""
    return sorted(path.stem for path in LIBRARY.glob(f"*{_SUFFIX}"))


#: Names that people look for among the workloads. What needs clients of its own and an ailing broker is another
#: command.
ELSEWHERE = {"retry-storm": "lab retry-storm"}


def find_workload(file_or_name: str) -> Workload:
    """A file, or one of the library by its name. Raises PipelineError."""
    path = Path(file_or_name)
    if path.suffix not in (_SUFFIX, ".yml"):
        path = LIBRARY / f"{file_or_name}{_SUFFIX}"
        if file_or_name in ELSEWHERE:
            raise PipelineError(f"{file_or_name} is tried by `python -m pipeline {ELSEWHERE[file_or_name]}`")
        if not path.exists():
            near = _near(file_or_name, names())
            raise PipelineError(
                f"there is no workload {file_or_name!r}{near}; `list` shows all, a file ends in .yaml"
            )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    try:
        return parse_workload(content, path.stem)
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from error


def parse_workload(content: object, name: str) -> Workload:
    """`name`: where the content has none. Raises ValueError."""
    fields = _checked(content)
    fields["name"] = fields["name"] or name
    producers = fields["producersPerTopic"] * fields["topics"]
    rate_per_s = fields["producerRate"] or None
    workload = Workload(
        name=fields["name"],
        exercises=fields["exercises"],
        partitions=fields["partitionsPerTopic"],
        compression=_one_of(fields, "compression", {name: name for name in _COMPRESSIONS}),
        warm_up_s=round(fields["warmupDurationMinutes"] * 60),
        topic_config={str(key): _config_text(value) for key, value in (fields["topicConfig"] or {}).items()},
        backlog_bytes=round(fields["consumerBacklogSizeGB"] * 1e9),
        is_purged=fields["purge"],
        spec_fields={
            "records": _records(fields, rate_per_s),
            "record_size_bytes": fields["messageSize"],
            "random_share": float(fields["randomBytesRatio"]) if fields["useRandomizedPayloads"] else 0.0,
            "keys": fields["keys"],
            "producers": producers,
            "rate_per_s": rate_per_s,
            "topics": fields["topics"],
            "producers_per_task": fields["producersPerTask"],
            "key_distribution": _one_of(fields, "keyDistributor", _KEY_DISTRIBUTORS),
            "zipf_theta": float(fields["zipfTheta"]),
            "values": _one_of(fields, "values", _VALUES),
            "tombstone_share": float(fields["tombstones"]),
            "tombstone_tail": fields["tombstoneTail"],
            "transaction_records": fields["transactionRecords"],
            "abort_share": float(fields["abortedTransactions"]),
        },
    )
    if workload.partitions < 1:
        raise ValueError(f"partitionsPerTopic must be at least 1, not {workload.partitions}")
    if workload.backlog_bytes and (
        workload.is_purged or workload.spec_fields["values"] is not ValueKind.CHECKED
    ):
        raise ValueError("consumerBacklogSizeGB goes with checked values, and not with purge")
    workload.spec("check", 0, 0)
    return workload


def _checked(content: object) -> dict[str, Any]:
    """All fields, with the defaults of those that are not given."""
    if not isinstance(content, dict):
        raise ValueError("not a mapping of fields to values")
    for field, value in content.items():
        if field not in _FIELDS:
            raise ValueError(f"there is no field {field!r}{_near(str(field), list(_FIELDS))}")
        kinds, _ = _FIELDS[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{field} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}")
    return {field: content.get(field, default) for field, (_, default) in _FIELDS.items()}


def _records(fields: Mapping[str, Any], rate_per_s: float | None) -> int:
    records, minutes = fields["records"], fields["testDurationMinutes"]
    if (records is None) == (minutes is None):
        raise ValueError("say either records or testDurationMinutes")
    if records is not None:
        return int(records)
    if rate_per_s is None:
        raise ValueError("testDurationMinutes needs a producerRate; as fast as it goes, say records")
    return int(rate_per_s * minutes * 60)


def _one_of(fields: Mapping[str, Any], field: str, known: Mapping[str, Any]) -> Any:
    try:
        return known[fields[field]]
    except KeyError:
        raise ValueError(f"{field} is one of {', '.join(known)}, not {fields[field]!r}") from None


def _config_text(value: object) -> str:
    """As Kafka writes a setting's value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
