"""`varve cluster`: `up`, `down` and `status` of a cluster on this machine, for development, tests and the demo. The
other subcommands are about any cluster as a whole."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import click

from broker.cli.base_dir import base_dir_option, existing_cluster
from broker.cli.cluster_features import features
from broker.cli.cluster_health import health
from broker.cli.cluster_info import info
from broker.cli.cluster_leaders import elect_leaders
from broker.cli.cluster_logs import logs
from broker.cli.cluster_quorum import quorum
from broker.cli.cluster_secret import secret
from broker.cli.confirm import confirm, named, yes_option
from broker.cli.local_cluster import (
    DEFAULT_PORTS,
    PROBE_TIMEOUT_S,
    LocalCluster,
    LocalClusterError,
    LocalNode,
    wait_until_ready,
)
from broker.cli.output import counted, format_option, print_list
from broker.cli.processes import Process, stop_processes
from broker.cli.reassign import reassign
from broker.cli.root import CommandError
from broker.cli.start import parse_pairs


@click.group()
def cluster() -> None:
    """Run a cluster on this machine, or manage any cluster.

    up, down, status and logs are for a cluster on this machine, of three nodes unless --nodes or --ports says
    otherwise.
    """


for command in (info, logs, health, quorum, features, elect_leaders, reassign, secret):
    cluster.add_command(command)


def _ports(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.isdecimal() and 0 < int(part) < 65534 for part in parts):
        raise click.BadParameter("expected ports, as in 19092,29092,39092")
    ports = tuple(int(part) for part in parts)
    if len({*ports, *(port + 1 for port in ports)}) != 2 * len(ports):
        raise click.BadParameter("each node needs its port and the next one, and no two may share one")
    return ports


@cluster.command()
@base_dir_option
@click.option("--nodes", type=click.IntRange(1, len(DEFAULT_PORTS)), help="Number of nodes.  [default: 3]")
@click.option(
    "--ports",
    callback=_ports,
    help="The client port of each node. The next port is for the other nodes, the one after that for metrics.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of every node. It is kept for later starts. Repeatable.",
)
@click.option("--unset", multiple=True, metavar="KEY", help="Take such a setting back. Repeatable.")
@click.option("--timeout", "timeout_s", type=float, default=90.0, show_default=True, help="Seconds to wait.")
@format_option
def up(
    base_dir: Path,
    nodes: int | None,
    ports: tuple[int, ...] | None,
    config: tuple[str, ...],
    unset: tuple[str, ...],
    timeout_s: float,
    shape: str,
) -> None:
    """Start the nodes that are not running. Wait until all nodes answer.

    Nodes that are running keep the settings that they were started with.
    """
    begun = time.monotonic()
    wanted = ports or (DEFAULT_PORTS[:nodes] if nodes else None)
    if ports and nodes not in (None, len(ports)):
        raise click.UsageError(f"--nodes {nodes} and {counted(len(ports), 'port')} do not agree")
    try:
        found = LocalCluster.load(base_dir)
        if found and wanted not in (None, found.ports):
            raise CommandError(
                f"{base_dir} holds a cluster of {counted(len(found.ports), 'node')} at {found.bootstrap_server}; "
                "`varve cluster down --delete-data` removes it"
            )
        before = found.settings if found else {}
        settings = {**before, **parse_pairs(config, "--config")}
        for key in unset:
            if settings.pop(key, None) is None:
                raise click.UsageError(f"{key} is not set, so --unset cannot take it back")
        local = LocalCluster(base_dir, found.ports if found else wanted or DEFAULT_PORTS[:3], settings)
        if settings != before:
            _check_settings(local)
        with local.locked():
            processes = {node.node_id: process for node in local.nodes if (process := node.process())}
            missing = [node for node in local.nodes if node.node_id not in processes]
            processes |= local.start(missing)
            wait_until_ready(local, processes, begun + timeout_s, partial(click.echo, err=True))
    except LocalClusterError as error:
        raise CommandError(str(error)) from None
    except PermissionError as error:
        raise CommandError(f"no permission for {error.filename}") from None
    elapsed_s = time.monotonic() - begun
    if shape == "json":
        rows = [_row(node, processes.get(node.node_id), "up") for node in local.nodes]
        print_list("nodes", rows, bootstrap_server=local.bootstrap_server, elapsed_ms=round(elapsed_s * 1000))
        return
    for node in local.nodes:
        verb = "started" if node in missing else "was running"
        click.echo(f"node {node.node_id}  {node.address}  pid {processes[node.node_id].pid}  {verb}")
    click.echo(
        f"{counted(len(local.nodes), 'node', 'answer')} after {elapsed_s:.2f} s."
        f" Clients connect to {local.bootstrap_server}"
    )
    running = [node.node_id for node in local.nodes if node not in missing]
    if settings != before and running:
        click.echo(
            f"varve: {named([f'node {node_id}' for node_id in running])} still"
            f" {'runs' if len(running) == 1 else 'run'} with the settings of {'its' if len(running) == 1 else 'their'}"
            " start; `varve cluster down` and `varve cluster up` apply the new ones",
            err=True,
        )
    if urls := [node.metrics_url for node in local.nodes if node.metrics_url]:
        click.echo(f"Metrics are at {' '.join(urls)}")


def _check_settings(local: LocalCluster) -> None:
    """Before they are stored, or a node is started with them. Raises UsageError."""
    from broker.config.node_config import ConfigError
    from broker.config.sources import load

    for node in local.nodes:
        try:
            load(properties={}, properties_name="", environ=os.environ, flags=local.settings_of(node))
        except ConfigError as error:
            raise click.UsageError(str(error)) from None


@cluster.command()
@base_dir_option
@click.option(
    "--grace",
    "grace_s",
    type=float,
    default=30.0,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL.",
)
@click.option("--delete-data", is_flag=True, help="Delete the data of the nodes, too.")
@yes_option
def down(base_dir: Path, grace_s: float, delete_data: bool, is_sure: bool) -> None:
    """Stop the nodes. The data stays, unless --delete-data is given."""
    try:
        local = LocalCluster.load(base_dir)
        if local is None:
            click.echo(f"There is no cluster in {base_dir}.")
            return
        if delete_data:
            confirm(f"Delete the cluster in {base_dir} with all its data", is_sure=is_sure)
        with local.locked():
            processes = {node.node_id: process for node in local.nodes if (process := node.process())}
            killed = {process.pid for process in stop_processes(list(processes.values()), grace_s)}
            for node in local.nodes:
                (node.directory / "pid").unlink(missing_ok=True)
            if delete_data:
                for node in local.nodes:
                    if node.directory.exists():
                        shutil.rmtree(node.directory)
                (base_dir / "cluster.json").unlink()
                local.secret_file.unlink(missing_ok=True)
    except LocalClusterError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    for node_id, process in processes.items():
        click.echo(f"node {node_id}  pid {process.pid}  {'killed' if process.pid in killed else 'stopped'}")
    if not processes:
        click.echo("No node was running.")


@cluster.command()
@base_dir_option
@format_option
def status(base_dir: Path, shape: str) -> None:
    """Show each node's process and state.

    The states are up, not answering (the process runs, but does not answer or knows no controller), and down. For an
    exit code use `varve health`.
    """
    from broker.cli.probe import ProbeError, probe

    local = existing_cluster(base_dir)
    rows = []
    for node in local.nodes:
        process, state = node.process(), "down"
        if process:
            try:
                view = probe("localhost", node.port, PROBE_TIMEOUT_S)
                state = "up" if view.controller_id >= 0 else "not answering"
            except ProbeError:
                state = "not answering"
        rows.append(_row(node, process, state))
    if shape == "json":
        print_list("nodes", rows, bootstrap_server=local.bootstrap_server)
        return
    for row in rows:
        click.echo(f"node {row['node_id']}  {row['address']}  pid {row['pid'] or '-'}  {row['state']}")


def _row(node: LocalNode, process: Process | None, state: str) -> dict[str, object]:
    return {
        "node_id": node.node_id,
        "pid": process.pid if process else None,
        "address": node.address,
        "state": state,
        "metrics": node.metrics_url,
        "directory": str(node.directory),
    }
