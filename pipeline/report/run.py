"""Reading the folder of a run: what is there, and what is not. Without Spark, and without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import PipelineError
from pipeline.report.sweep import SWEEP, Sweep, parse_sweep
from pipeline.run_files import CONFIG, LATENCY, SUMMARY, THROUGHPUT


@dataclass(slots=True)
class Run:
    """One run as its files tell it."""

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    sweep: Sweep | None = None
    latency: list[tuple[int, bytes]] = field(default_factory=list)
    """(second of intended send time, encoded HDR histogram), several per second."""
    throughput: pa.Table | None = None
    """second of acknowledgement, partition, records, value_bytes."""
    missing: list[str] = field(default_factory=list)
    """What a whole run has and this one has not, each as a sentence."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def load(self) -> dict[str, Any] | None:
        return self.summary.get("load")

    @property
    def stream(self) -> dict[str, Any] | None:
        """Of a run of streaming queries, which has no load: its records came by way of a query."""
        return self.summary.get("stream")

    @property
    def start_us(self) -> int | None:
        """Wall time of the first intended record: second 0 of the figures over time. None where none is known."""
        return (self.load or self.stream or {}).get("start_us")

    @property
    def verify(self) -> dict[str, Any] | None:
        return self.summary.get("verify")

    @property
    def fault(self) -> dict[str, Any] | None:
        return self.summary.get("fault")

    @property
    def is_interrupted(self) -> bool:
        return "interrupted" in self.summary or bool(self.load and self.load.get("interrupted"))


def read_runs(folder: Path) -> list[Run]:
    """The run in the folder; or those in its subfolders, as a fault test leaves them. Raises PipelineError."""
    if not folder.is_dir():
        raise PipelineError(f"{folder} is not a folder")
    try:
        if _is_run(folder):
            return [_read(folder.resolve())]
        within = [path for path in sorted(folder.iterdir()) if path.is_dir() and _is_run(path)]
        if not within:
            raise PipelineError(f"{folder} is not the folder of a run: it has no {CONFIG} and no {SWEEP}")
        # In the order in which they were run, where that is known.
        runs = [_read(path.resolve()) for path in within]
        return sorted(runs, key=lambda run: str(run.config.get("started_at", "")))
    except OSError as error:
        raise PipelineError(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).exists() or (folder / SWEEP).exists()


def _read(folder: Path) -> Run:
    run = Run(folder, _json_object(folder / CONFIG), _json_object(folder / SUMMARY))
    _check_sections(folder / CONFIG, run.config, ("spec", "options", "host", "versions"))
    _check_sections(folder / SUMMARY, run.summary, ("load", "stream", "verify", "fault"))
    if (folder / SWEEP).exists():
        run.sweep = parse_sweep(_json(folder / SWEEP), str(folder / SWEEP))
    if run.config:
        _read_load(run)
        if run.load is None and run.stream is None:
            run.missing.append("The load did not come to its end, so there are no figures of it.")
    return run


def _read_load(run: Run) -> None:
    """What there is of the load's tables."""
    if latency := _table(run.folder / LATENCY, ["second", "histogram"]):
        run.latency = list(zip(latency["second"].to_pylist(), latency["histogram"].to_pylist(), strict=True))
    run.throughput = _table(run.folder / THROUGHPUT, ["second", "partition", "records", "value_bytes"])
    if (run.load or run.stream or {}).get("acknowledged", 0) == 0:
        return
    if not run.latency:
        run.missing.append(f"{LATENCY} is missing: no latency over time, no percentiles.")
    if run.throughput is None:
        run.missing.append(f"{THROUGHPUT} is missing: no throughput over time.")


def _table(file: Path, columns: list[str]) -> pa.Table | None:
    """What the file holds; None where there is none."""
    if not file.exists():
        return None
    try:
        return pq.read_table(file, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise PipelineError(f"{file} cannot be read: {_first_line(error)}") from error


def _json_object(path: Path) -> dict[str, Any]:
    """The object in the file; an empty one where there is no file."""
    content = _json(path) if path.exists() else {}
    if not isinstance(content, dict):
        raise PipelineError(f"{path} does not hold a JSON object")
    return content


def _check_sections(path: Path, content: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(content.get(name, {}), dict):
            raise PipelineError(f"{path}: {name!r} is not an object")


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path} is not JSON: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
