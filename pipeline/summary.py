"""`summary.json` of a run: a section per job, for scripts; and the tables that people see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.run_files import SUMMARY, write_json

_SHOWN_OFFENDERS = 3


def update_summary(run: Path, section: str, figures: dict[str, Any]) -> None:
    """Write one job's section and keep the others'."""
    path = run / SUMMARY
    summary = json.loads(path.read_text()) if path.exists() else {}
    summary[section] = figures
    write_json(path, summary)


def load_rows(load: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, figure) of a load, for a table."""
    rows = [
        ("records", f"{load['records']:,}"),
        ("acknowledged", f"{load['acknowledged']:,}"),
        ("not acknowledged", f"{load['failed'] + load['unreported']:,}"),
    ]
    if load["aborted"]:
        rows.append(("aborted on purpose", f"{load['aborted']:,}"))
    if "duration_s" in load:
        rows += [
            ("duration", f"{load['duration_s']:.1f} s"),
            ("throughput", f"{load['records_per_s']:,.0f} records/s, {load['megabytes_per_s']:.2f} MB/s"),
        ]
        latency = warm_latency_ms(load)
        figures = " / ".join(f"{latency[name]:,.1f}" for name in ("p50", "p99", "p99.9", "max"))
        rows.append(("latency p50 / p99 / p99.9 / max", f"{figures} ms"))
        if gap := load["longest_gap"]:
            rows.append(("longest time without an ack", gap_figure(gap)))
    rows += [("delivery error", f"{count:,}x {error}") for error, count in load["errors"].items()]
    return rows


def warm_latency_ms(load: dict[str, Any]) -> dict[str, float]:
    """A run shorter than its warm-up has only the figures with it."""
    latency: dict[str, float] = load["latency_ms"] or load["latency_ms_with_warm_up"]
    return latency


def compaction_line(compaction: dict[str, Any]) -> str:
    """How far a compacted topic is compacted."""
    return (
        f"compacted: {compaction['records']:,} of {compaction['acknowledged']:,} acknowledged records are left,"
        f" {compaction['superseded']:,} of them with a newer one of their key; {compaction['tombstones']:,} tombstones"
    )


def gap_figure(gap: dict[str, Any]) -> str:
    return f"{gap['gap_ms']:,.0f} ms (partition {gap['partition']})"


def fault_gap_figure(fault: dict[str, Any]) -> str:
    """The longest time without an acknowledgement from a trial's first fault on."""
    return gap_figure(fault["gap"]) if fault["gap"] else "nothing was acknowledged any more"


def print_load(console: Console, title: str, load: dict[str, Any]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, figure in load_rows(load):
        table.add_row(name, figure)
    console.print(table)
    if "duration_s" in load:
        console.print(perf_test_line(load), markup=False, highlight=False, soft_wrap=True)


def perf_test_line(load: dict[str, Any]) -> str:
    """The figures as Kafka's kafka-producer-perf-test prints them, to be compared with its. Its MB has 2^20 bytes."""
    latency = warm_latency_ms(load)
    mebibytes_per_s = load["megabytes_per_s"] * 1e6 / (1 << 20)
    percentiles = ", ".join(
        f"{latency[f'p{share}']:.0f} ms {share}th" for share in ("50", "95", "99", "99.9")
    )
    return (
        f"{load['acknowledged']} records sent, {load['records_per_s']:f} records/sec ({mebibytes_per_s:.2f} MB/sec), "
        f"{latency['mean']:.2f} ms avg latency, {latency['max']:.2f} ms max latency, {percentiles}."
    )


def print_checks(console: Console, title: str, checks: list[dict[str, Any]]) -> None:
    """One row per check, then a sample of what failed each."""
    table = Table(title=title, title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("expected", justify="right", no_wrap=True)
    table.add_column("actual", justify="right", no_wrap=True)
    table.add_column("")
    for check in checks:
        style = "green" if check["status"] == "PASS" else "bold red"
        expected, actual = f"{check['expected']:,}", f"{check['actual']:,}"
        table.add_row(check["name"], expected, actual, f"[{style}]{check['status']}[/]")
    console.print(table)
    for check in checks:
        for offender in check["sample"][:_SHOWN_OFFENDERS]:
            console.print(f"{check['name']}: {json.dumps(offender)}", markup=False, soft_wrap=True)
