"""What a check says, however it was made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.run_files import CHECKS
from pipeline.run_tables import write_table

_SAMPLE_SIZE = 5
_CHECKS_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("expected", pa.int64()),
        ("actual", pa.int64()),
        ("status", pa.string()),
        ("sample", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    expected: int
    actual: int
    status: str
    """PASS or FAIL."""
    sample: list[dict[str, Any]]
    """Up to five of the offenders."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def passed(results: list[CheckResult]) -> bool:
    return all(result.status == "PASS" for result in results)


def found(name: str, expected: int, missing: DataFrame, actual: int | None = None) -> CheckResult:
    """A check of what is there. `actual`: how much that is; None: all but what is missing.

    Nothing expected proves nothing: then the run has not been tested, and must not look as if it had.
    """
    lost = result(name, missing.count(), missing)
    if actual is None:
        actual = expected - lost.actual
    status = "PASS" if actual == expected and expected > 0 else "FAIL"
    return CheckResult(name, expected, actual, status, lost.sample)


def result(name: str, count: int, offenders: DataFrame) -> CheckResult:
    """A check of what must not be there: so many violations, and some of them."""
    sample = [] if count == 0 else [_plain(row.asDict()) for row in offenders.limit(_SAMPLE_SIZE).collect()]
    return CheckResult(name, 0, count, "PASS" if count == 0 else "FAIL", sample)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Keys as text, for JSON."""
    return {
        name: bytes(value).decode(errors="backslashreplace")
        if isinstance(value, bytes | bytearray)
        else value
        for name, value in fields.items()
    }


def write_checks(run: Path, results: list[CheckResult]) -> None:
    """As the run's `verify.parquet`; each sample is JSON there."""
    rows = [each.to_json() | {"sample": json.dumps(each.sample)} for each in results]
    write_table(run / CHECKS, pa.Table.from_pylist(rows, schema=_CHECKS_SCHEMA))
