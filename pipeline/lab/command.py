"""The command `lab`: run experiments, and show what was found as tables, as `sweep.json` and as a page."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as TerminalTable

from pipeline.console import errors_as_exit_code, exit_on_sigterm, say_with_time
from pipeline.lab.registry import EXPERIMENTS
from pipeline.options import RUN_FOLDER
from pipeline.run_files import LOG

if TYPE_CHECKING:
    from pipeline.report.sweep import Cell, Sweep

#: A column's name with dots takes a line for each part from so many characters on.
_WIDE = 10
#: From here on a fraction says nothing.
_WITHOUT_FRACTION = 1000


def _pids(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[int, int]:
    try:
        return {int(node): int(pid) for node, pid in (value.split("=") for value in values)}
    except ValueError:
        raise click.BadParameter("a node's process is NODE=PID, e.g. 1=4711") from None


@click.command("lab")
@click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)), metavar="[NAME]...")
@click.option("--list", "is_list", is_flag=True, help="Say which experiments there are.")
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,...",
    help="A cluster on this machine.  [default: one of three nodes that is started for it]",
)
@click.option(
    "--node-command",
    metavar="COMMAND",
    default="",
    help="With --bootstrap-server: `COMMAND kill N` and `COMMAND start N` do so to node N.",
)
@click.option(
    "--node-pid", multiple=True, metavar="N=PID", callback=_pids, help="The process of node N. Repeatable."
)
@click.option(
    "--data-mount",
    type=click.Path(path_type=Path),
    help="Where the file system is mounted that holds the data of all nodes, to cut its power.",
)
@click.option("--quick", is_flag=True, help="Small points: to see that it works, not to learn from.")
@click.option("--base-dir", default=".varve/lab", show_default=True, type=click.Path(path_type=Path))
@click.option("--out", type=RUN_FOLDER, help="The folder of the findings.  [default: runs/lab-TIME]")
def lab_command(
    names: tuple[str, ...],
    is_list: bool,
    bootstrap_server: str | None,
    node_command: str,
    node_pid: dict[int, int],
    data_mount: Path | None,
    quick: bool,
    base_dir: Path,
    out: Path | None,
) -> None:
    """Try the advice of producer guides on a cluster: run the experiments NAME..., or list them."""
    if is_list or not names:
        for experiment in EXPERIMENTS.values():
            click.echo(f"{experiment.name:<14}{experiment.summary}")
        return
    folder = out or Path("runs") / time.strftime("lab-%Y%m%d-%H%M%S")
    say = say_with_time()
    exit_on_sigterm()
    with errors_as_exit_code(folder / LOG):
        from pipeline.lab.bench import Bench, own_bench
        from pipeline.lab.nodes import ForeignNodes
        from pipeline.load.job import make_run_folder
        from pipeline.report.command import write_report
        from pipeline.report.findings import write_findings

        for name in names:
            # Each experiment is a page of its own, and two runs of one are compared by `report --compare`.
            own = folder / name if len(names) > 1 else folder
            make_run_folder(own)
            say(f"== {name}")
            if bootstrap_server is None:
                ours: AbstractContextManager[Bench] = own_bench(base_dir, own, say, quick)
            else:
                nodes = ForeignNodes(node_command, node_pid) if node_command or node_pid else None
                ours = nullcontext(Bench(bootstrap_server, own, say, quick, nodes, data_mount=data_mount))
            with ours as bench:
                findings = EXPERIMENTS[name].run(bench)
            write_findings(own, findings)
            print_findings(Console(), findings)
            click.echo(f"The same as a page, with plots: {write_report(own)}")


def print_findings(console: Console, findings: Sweep) -> None:
    """Ten columns of figures fit on 80 characters, each whole."""
    for table in findings.tables:
        shown = TerminalTable(
            title=table.title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False
        )
        for column in table.columns:
            name = column.name.replace(".", ".\n") if len(column.name) > _WIDE else column.name
            unit = f"\n{column.unit}" if column.unit else ""
            shown.add_column(f"{name}{unit}", justify="right", overflow="fold")
        for row in table.rows:
            shown.add_row(*map(_shown, row))
        console.print(shown)
        console.print(f"{table.text}\n", markup=False, highlight=False)
    console.print(findings.text, markup=False, highlight=False)


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}" if abs(cell) < _WITHOUT_FRACTION else f"{cell:,.0f}"
    return cell
