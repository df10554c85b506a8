"""Run folders as the jobs of the pipeline leave them, small, with real Parquet files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from hdrh.histogram import HdrHistogram

from pipeline.run_tables import write_table

START_US = 1_795_716_704_000_000
#: Of each second: how long its records took, in microseconds.
LATENCIES_US = ([900, 1_000, 1_100], [2_000, 2_000, 40_000], [1_000, 1_000, 1_000_000], [1_000, 1_000, 1_000])
PARTITIONS = 2


def config(**spec: Any) -> dict[str, Any]:
    return {
        "spec": {"topic": "t", "records": 12, "record_size_bytes": 1024, "rate_per_s": 3.0, **spec},
        "run_id": "1-1",
        "options": {
            "bootstrap_server": "localhost:19092",
            "run": "runs/1",
            "compression": "none",
            "linger_ms": 5.0,
        },
        "start_offsets": {"0": 0, "1": 0},
        "end_offsets": {"0": 6, "1": 6},
        "started_at": "2026-11-26T18:11:44+0000",
        "host": {"machine": "x86_64", "system": "Linux"},
        "versions": {"git": "f450cb3", "python": "3.11.7"},
    }


def load_section() -> dict[str, Any]:
    latency = {"p50": 1.0, "p90": 40.0, "p99": 1000.0, "p99.9": 1000.0, "max": 1000.0, "mean": 87.5}
    return {
        "records": 12,
        "acknowledged": 12,
        "failed": 0,
        "unreported": 0,
        "errors": {},
        "duration_s": 4.0,
        "records_per_s": 3.0,
        "megabytes_per_s": 0.003,
        "latency_ms": latency,
        "latency_ms_with_warm_up": latency,
        "warm_up_s": 0,
        "longest_gap": {
            "gap_ms": 980.0,
            "partition": 1,
            "from_us": START_US + 2_000_000,
            "gap_ms_by_partition": {},
        },
        "interrupted": False,
        "start_us": START_US,
    }


def stream_section() -> dict[str, Any]:
    """Of a run of streaming queries, which has no load."""
    load = load_section()
    latency = load["latency_ms"]
    return {
        "records": 12,
        "acknowledged": 12,
        "failed": 0,
        "arrived": 12,
        "repeated": 3,
        "duration_s": 4.0,
        "records_per_s": 3.0,
        "latency_ms": latency,
        "latency_ms_with_warm_up": latency,
        "warm_up_s": 0,
        "longest_gap": load["longest_gap"],
        "start_us": START_US,
        "batches": 8,
        "batch_ms": {"p50": 450, "max": 900},
        "broker_kills": 1,
        "driver_kills": 1,
        "repeated_batches": [],
    }


def verify_section(failed: Mapping[str, list[dict[str, Any]]] | None = None) -> dict[str, Any]:
    """`failed`: the offenders of each check that has some."""
    names = ["acknowledged records found", "duplicate records", "alien records", *(failed or {})]
    checks = [
        {
            "name": name,
            "expected": 12 if name == "acknowledged records found" else 0,
            "actual": 12 if name == "acknowledged records found" else len((failed or {}).get(name, [])),
            "status": "FAIL" if name in (failed or {}) else "PASS",
            "sample": (failed or {}).get(name, []),
        }
        for name in dict.fromkeys(names)
    ]
    return {
        "passed": not failed,
        "read_by": "Spark's official connector",
        "records_read": 12,
        "ranges": {"0": [0, 6], "1": [0, 6]},
        "checks": checks,
    }


def fault_section() -> dict[str, Any]:
    return {
        "events": [
            {"at_us": START_US + 1_500_000, "what": "kill -9 of node 2"},
            {"at_us": START_US + 3_250_000, "what": "node 2 back"},
        ],
        "gap": {"gap_ms": 270.0, "partition": 0, "from_us": START_US + 1_600_000, "gap_ms_by_partition": {}},
    }


def write_run(folder: Path, summary: Mapping[str, Any] | None = None, **spec: Any) -> Path:
    """The folder of a load; `summary` decides which sections summary.json has."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(**spec)))
    (folder / "summary.json").write_text(json.dumps({"load": load_section()} if summary is None else summary))
    write_load_files(folder)
    return folder


def write_load_files(folder: Path) -> None:
    histograms = []
    for latencies in LATENCIES_US:
        histogram = HdrHistogram(1, 3_600_000_000, 3)
        for latency_us in latencies:
            histogram.record_value(latency_us)
        histograms.append(histogram.encode())
    latency = pa.table(
        {"second": range(len(histograms)), "records": [3] * len(histograms), "histogram": histograms}
    )
    # Partition 1 acknowledges nothing in second 2.
    rows = [(s, p) for s in range(len(LATENCIES_US)) for p in range(PARTITIONS) if (s, p) != (2, 1)]
    throughput = pa.table(
        {
            "second": [s for s, _ in rows],
            "partition": [p for _, p in rows],
            "records": [p + 1 for _, p in rows],
            "value_bytes": [1024 * (p + 1) for _, p in rows],
        }
    )
    for name, table in (("latency", latency), ("throughput", throughput)):
        write_table(folder / f"{name}.parquet", table)


def sweep() -> dict[str, Any]:
    return {
        "format": 1,
        "title": "Density of batches",
        "text": "Batches grow with the linger until they are full.",
        "tables": [
            {
                "title": "Measured beside the model",
                "columns": [
                    {"name": "linger.ms", "unit": "ms"},
                    {"name": "density", "unit": "records"},
                    {"name": "full"},
                ],
                "rows": [[0, 1.25, False], [5, 25, False], [50, 120.5, True]],
            }
        ],
        "plots": [
            {
                "title": "Density by linger.ms",
                "x": {"name": "linger.ms", "unit": "ms"},
                "y": {"name": "records in a batch", "scale": "log"},
                "series": [
                    {"name": "measured", "points": [[0, 1.25], [5, 25], [50, 120.5]]},
                    {"name": "rate x linger", "model": True, "points": [[0, 1], [5, 25], [50, 250]]},
                ],
            },
            {
                "title": "Throughput by acks",
                "x": {"name": "acks", "scale": "category"},
                "y": {"name": "throughput", "unit": "MB/s"},
                "series": [{"name": "Varve", "points": [["0", 60], ["1", 55], ["all", 51]]}],
            },
        ],
    }
