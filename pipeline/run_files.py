"""The files of a run's folder by name, for all that write or read one. README.md tells what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = "config.json"
SUMMARY = "summary.json"
DELIVERIES = "deliveries.parquet"
LATENCY = "latency.parquet"
THROUGHPUT = "throughput.parquet"
CHECKS = "verify.parquet"
LOG = "spark.log"

#: What stands in `DELIVERIES` as the error of a record whose transaction was aborted on purpose.
ABORTED = "aborted on purpose"


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def is_written(parquet: Path) -> bool:
    """Whether Spark came to the end of writing it; of a job that did not, there may be parts."""
    return (parquet / "_SUCCESS").exists()
