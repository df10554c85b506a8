"""The progress bars of a load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from pipeline.console import STDERR

if TYPE_CHECKING:
    from pipeline.load.progress import Progress


class _RecordsColumn(MofNCompleteColumn):
    """How many of all; nothing for a phase, which counts nothing."""

    def render(self, task: Task) -> Text:
        return Text() if task.fields.get("is_phase") else super().render(task)


class LoadBar:
    """Progress bars of a load: of its acknowledged records, then one that only moves for each later phase."""

    def __init__(self, bar: ProgressBar, records: int) -> None:
        self._bar = bar
        self._records = records
        self._task = bar.add_task("acknowledged", total=records)
        self._phase: TaskID | None = None

    def progressed(self, progress: Progress) -> None:
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        self._bar.update(self._task, completed=progress.acknowledged, description=f"acknowledged{failed}")

    def begins(self, phase: str) -> None:
        self._bar.stop_task(self._task)
        self.end_phase()
        self._phase = self._bar.add_task(phase, total=None, is_phase=True)

    def end_phase(self) -> None:
        if self._phase is not None:
            self._bar.update(self._phase, total=1, completed=1)


@contextmanager
def load_bar(records: int) -> Iterator[LoadBar]:
    columns = (TextColumn("{task.description}"), BarColumn(), _RecordsColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=STDERR) as bar:
        shown = LoadBar(bar, records)
        yield shown
        shown.end_phase()
