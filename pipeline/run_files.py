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


def deliveries_uri(run: Path) -> str:
    """Where executors write `DELIVERIES`, for Spark to read: in the run's folder, unless the load had it elsewhere.

    A URI and no path, since what a path means is for Spark's `fs.defaultFS` to say.
    """
    return _deliveries_elsewhere(run) or (run / DELIVERIES).resolve().as_uri()


def is_loaded(run: Path) -> bool:
    """Whether a load has come to the end of writing its deliveries; of one that did not, there may be parts."""
    if not (run / CONFIG).exists():
        return False
    if _deliveries_elsewhere(run) is None:
        return (run / DELIVERIES / "_SUCCESS").exists()
    # Only Spark can look there, and what it says when it cannot read is told.
    return (run / SUMMARY).exists() and "load" in json.loads((run / SUMMARY).read_text())


def _deliveries_elsewhere(run: Path) -> str | None:
    """The load's option; a stream has none."""
    elsewhere: str | None = json.loads((run / CONFIG).read_text())["options"].get("deliveries")
    return elsewhere
