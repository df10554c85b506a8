"""`varve cluster health`: what is wrong with the cluster as a whole. The output is that of `rpk cluster health`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import format_option
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.cli.cluster_state import ClusterState, Partition

UNHEALTHY_EXIT_CODE = 10
WATCH_INTERVAL_S = 1.0


@click.command()
@bootstrap_option
@click.option("--watch", "-w", is_flag=True, help="Keep running and print every change, until Ctrl-C.")
@click.option("--exit-when-healthy", "-e", is_flag=True, help="Keep running until the cluster is healthy.")
@format_option
def health(bootstrap_server: str, watch: bool, exit_when_healthy: bool, shape: str) -> None:
    """Show what is wrong with the cluster.

    It is healthy if it has a controller, no node is down, and every partition has a leader and no out-of-sync replica.
    Exit codes: 0 healthy, 10 not healthy, 1 no broker answers.
    """
    shown: dict[str, object] | None = None
    while True:
        report = _report(bootstrap_server, keeps_running=watch or exit_when_healthy)
        is_healthy = bool(report["healthy"])
        if report != shown:
            click.echo(json.dumps(report) if shape == "json" else _text(report))
            shown = report
        if (is_healthy and exit_when_healthy) or not (watch or exit_when_healthy):
            sys.exit(0 if is_healthy else UNHEALTHY_EXIT_CODE)
        time.sleep(WATCH_INTERVAL_S)


def _report(bootstrap_server: str, *, keeps_running: bool) -> dict[str, object]:
    from broker.cli.cluster_state import ClusterState, describe_cluster

    try:
        return _assess(describe_cluster(bootstrap_server))
    except CommandError as error:
        if not keeps_running:
            raise
        nothing_known = ClusterState(cluster_id="", controller=None, brokers={}, down=[])
        return {**_assess(nothing_known), "unhealthy_reasons": [error.format_message()]}


def _assess(state: ClusterState) -> dict[str, object]:
    problems = {
        "no controller": state.controller is None,
        "nodes down": bool(state.down),
        "leaderless partitions": bool(state.leaderless),
        "under-replicated partitions": bool(state.under_replicated),
    }
    reasons = [problem for problem, is_there in problems.items() if is_there]
    return {
        "healthy": not reasons,
        "unhealthy_reasons": reasons,
        "controller_id": state.controller,
        "nodes": sorted(state.brokers),
        "nodes_down": state.down,
        "leaderless_partitions": _names(state.leaderless),
        "under_replicated_partitions": _names(state.under_replicated),
    }


def _names(partitions: Sequence[Partition]) -> list[str]:
    return [f"{topic}/{number}" for topic, number in sorted(partitions)]


def _text(report: dict[str, object]) -> str:
    rows = {
        "Healthy:": "true" if report["healthy"] else "false",
        "Unhealthy reasons:": _listed(report["unhealthy_reasons"], ", "),
    }
    rows["Controller ID:"] = "none" if report["controller_id"] is None else str(report["controller_id"])
    rows["All nodes:"] = _listed(report["nodes"])
    rows["Nodes down:"] = _listed(report["nodes_down"])
    for name, key in (("Leaderless", "leaderless"), ("Under-replicated", "under_replicated")):
        partitions = report[f"{key}_partitions"]
        assert isinstance(partitions, list)
        rows[f"{name} partitions ({len(partitions)}):"] = _listed(partitions)
    title = "CLUSTER HEALTH OVERVIEW"
    width = max(len(name) for name in rows) + 2
    return "\n".join([title, "=" * len(title), *(f"{name:<{width}}{value}" for name, value in rows.items())])


def _listed(values: object, separator: str = " ") -> str:
    assert isinstance(values, list)
    return f"[{separator.join(map(str, values))}]"
