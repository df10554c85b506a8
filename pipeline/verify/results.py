"""What a check says, however it was made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.run_files import CHECKS

_SAMPLE_SIZE = 5
_CHECKS_SCHEMA_SQL = "name string, expected bigint, actual bigint, status string, sample string"


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


def write_checks(spark: SparkSession, run: Path, results: list[CheckResult]) -> None:
    """As the run's `verify.parquet`."""
    rows = [(r.name, r.expected, r.actual, r.status, json.dumps(r.sample)) for r in results]
    spark.createDataFrame(rows, _CHECKS_SCHEMA_SQL).coalesce(1).write.mode("overwrite").parquet(
        str(run / CHECKS)
    )
