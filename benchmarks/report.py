"""What a measurement is saved as (JSON) and shown as (tables).

A published number names hardware, commit, command, runs and spread (performance.md section 0); so does the JSON.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.results import RowResult
from benchmarks.rows import ROW_BY_NAME

FORMAT_VERSION = 1
METRIC_TITLES: Mapping[str, str] = {
    "mb_per_s": "MB/s",
    "records_per_s": "rec/s",
    "requests_per_s": "req/s",
    "request_p50_us": "rtt p50 us",
    "request_p99_us": "p99 us",
    "request_p99_9_us": "p99.9 us",
    "record_p50_us": "p50 us",
    "record_p99_us": "p99 us",
    "record_p99_9_us": "p99.9 us",
    "cpu_ms_per_mb": "broker CPU ms/MB",
    "cpu_us_per_request": "broker CPU us/req",
    "cpu_cores": "CPU cores",
    "memory_mb_per_node": "MB/node",
    "memory_mb_max": "MB, largest",
    "longest_gap_ms": "longest gap ms",
    "kill_to_ack_ms": "kill to ack ms",
    "first_ack_s": "first ack s",
    "command_s": "command s",
    "served_s": "all served s",
    "answered_s": "answered s",
    "idle_cpu_percent_max": "idle CPU % of a core, max",
    "start_s": "all start s",
    "leave_s": "one leaves s",
    "join_s": "one joins s",
    "kept_leave": "undisturbed",
    "kept_join": "undisturbed",
    "cpu_ms": "broker CPU ms",
}


def log(text: str) -> None:
    """A line of progress for the person at the terminal."""
    click.echo(text, err=True)


def console() -> Console:
    """Standard output; into a file or a pipe, wide enough that no row wraps."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=160)


def number(value: float | None) -> str:
    """Three figures that count, thousands grouped; a dash for what was not measured."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(ratio: float) -> str:
    """A ratio as a change: 0.97 is -3.0 %."""
    return f"{100 * (ratio - 1):+.1f} %"


def machine() -> dict[str, Any]:
    """Hardware, system and how busy it is now."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def commit(checkout: Path) -> str:
    """The checkout's commit, marked if files differ from it."""
    described = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def to_document(header: Mapping[str, Any], results: Iterable[RowResult]) -> dict[str, Any]:
    rows = [
        {
            "row": result.row.name,
            "median": result.median,
            "spread": result.spread,
            "brokers": result.brokers,
            "errors": result.errors,
            "runs": [asdict(run) for run in result.runs],
        }
        for result in results
    ]
    return {"format": FORMAT_VERSION, **header, "rows": rows}


def merge_documents(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The new document and those rows of the old one that it lacks: a file can be filled in parts."""
    rows = {row["row"]: row for row in old["rows"]} | {row["row"]: row for row in new["rows"]}
    return {**new, "rows": [rows[name] for name in ROW_BY_NAME if name in rows]}


def load_document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    if document.get("format") != FORMAT_VERSION:
        raise ValueError(f"{path} is not a result of this version of scripts/bench")
    return document


def save_document(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(json.dumps(document, indent=1) + "\n")
    unfinished.replace(path)


def print_document(document: Mapping[str, Any], out: Console) -> None:
    """One table per group of rows with the same columns; brokers' shares and errors below each row."""
    out.print(
        f"{document['cluster']} at {document['bootstrap']}; driver: {document['driver']}; "
        f"median of {document['runs']} x {document['seconds']:g} s"
    )
    for columns, rows in _grouped(document["rows"]):
        table = Table(
            "row",
            *(METRIC_TITLES[column] for column in columns),
            "spread",
            "by broker",
            "errors",
            box=box.SIMPLE,
        )
        for index in range(1, len(columns) + 2):
            table.columns[index].justify = "right"
        table.columns[0].no_wrap = True
        for row in rows:
            errors = str(row["errors"]) if not row["errors"] else f"[bold red]{row['errors']} INVALID[/]"
            spread = row["spread"].get(columns[0])
            cells = [number(row["median"].get(column)) for column in columns]
            shown_spread = "-" if spread is None else f"{100 * spread:.0f} %"
            table.add_row(
                ROW_BY_NAME[row["row"]].title, *cells, shown_spread, _shares(row["brokers"], columns), errors
            )
        out.print(table)
    for row in document["rows"]:
        for note in dict.fromkeys(run["note"] for run in row["runs"] if run["note"]):
            out.print(f"{row['row']}: {note}", markup=False)


def _grouped(rows: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[str, ...], list[Mapping[str, Any]]]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(ROW_BY_NAME[row["row"]].columns, []).append(row)
    return list(groups.items())


def _shares(brokers: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    """The last column's figure that brokers have: "leader: 4.1  follower: 0.9", or one per node."""
    metric = next(
        (column for column in reversed(columns) if any(column in broker for broker in brokers.values())),
        "memory_mb",
    )
    return "  ".join(f"{node}: {number(broker.get(metric))}" for node, broker in brokers.items())
