"""`varve start`: read the configuration and run one node until it is told to stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from broker.cli.root import CommandError

#: Flags of their own have the settings that differ from node to node. Every other setting goes by --override.
_NAMED = {
    "node_id": "node.id",
    "cluster_id": "cluster.id",
    "listeners": "listeners",
    "advertised_listeners": "advertised.listeners",
    "controller_quorum_voters": "controller.quorum.voters",
    "log_dirs": "log.dirs",
}


def parse_pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """The values of a KEY=VALUE option as a dict. Raises BadParameter (exit code 2)."""
    found = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"expected KEY=VALUE, not {value!r}", param_hint=option)
        found[key.strip()] = text
    return found


@click.command()
@click.option(
    "--config", "file", type=click.Path(dir_okay=False, path_type=Path), help="A server.properties file."
)
@click.option(
    "--override", multiple=True, metavar="KEY=VALUE", help="Set any setting by its name. Repeatable."
)
@click.option("--node-id", help="node.id: the id of this node.")
@click.option("--cluster-id", help="cluster.id: the cluster that this node belongs to.")
@click.option("--listeners", metavar="NAME://HOST:PORT,...", help="listeners: the addresses to listen on.")
@click.option(
    "--advertised-listeners",
    metavar="NAME://HOST:PORT,...",
    help="advertised.listeners: the addresses that clients are given.",
)
@click.option(
    "--controller-quorum-voters",
    metavar="ID@HOST:PORT,...",
    help="controller.quorum.voters: the voters of the metadata quorum.",
)
@click.option("--log-dirs", metavar="DIRECTORY", help="log.dirs: the data directory.")
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the log to this file. At 10 MB a new one is begun; four older ones are kept.",
)
@click.option("--check", is_flag=True, help="Check the configuration, print it, and exit.")
def start(
    file: Path | None, override: tuple[str, ...], log_file: Path | None, check: bool, **named: str | None
) -> None:
    """Run one node in the foreground until SIGTERM or Ctrl-C.

    Settings come from the file, then from KAFKA_* environment variables (and CLUSTER_ID), then from flags. Later ones
    win. Without any setting, the node is a cluster of one that listens on localhost:9092 and keeps its data in
    ./varve-data. VARVE_CLUSTER_SECRET may hold the cluster's secret.
    """
    from broker.config.node_config import ConfigError
    from broker.config.sources import NODE_KEYS, load, parse_properties
    from broker.config.values import format_value
    from broker.security.cluster_secret import VARIABLE, SecretError, refusal_to_listen
    from broker.security.secret_file import load_secret

    flags = parse_pairs(override, "--override")
    flags |= {_NAMED[name]: value for name, value in named.items() if value is not None}
    try:
        text = file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the configuration file {file} cannot be read: {error}") from None
    try:
        loaded = load(
            properties=parse_properties(text), properties_name=str(file), environ=os.environ, flags=flags
        )
        config = loaded.config
        secret = load_secret(config.cluster_secret_file, os.environ.get(VARIABLE))
    except (ConfigError, SecretError) as error:
        raise click.UsageError(str(error)) from None
    own = config.controller_endpoint
    if refusal := refusal_to_listen(secret, own.host, own.name):
        raise click.UsageError(refusal)
    for line in loaded.warnings:
        click.echo(f"varve: warning: {line}", err=True)
    for line in loaded.notes:
        click.echo(f"varve: {line}", err=True)
    if check:
        for attribute, key in NODE_KEYS.items():
            click.echo(f"{key.name}={format_value(getattr(config, attribute))}")
        return

    from broker.log_file import LogFile
    from broker.main import run

    try:
        log = None if log_file is None else LogFile(log_file)
    except OSError as error:
        raise CommandError(f"the log file {log_file} cannot be written: {error.strerror}") from None
    sys.exit(run(config, secret, log))
