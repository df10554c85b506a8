"""`varve health`: for the healthcheck of a container and for start scripts."""

from __future__ import annotations

import sys

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import format_option, print_list
from broker.cli.probe import ProbeError, probe
from broker.config.values import address


@click.command()
@bootstrap_option
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=3.0,
    show_default=True,
    help="How many seconds each broker has to answer.",
)
@format_option
def health(bootstrap_server: str, timeout_s: float, shape: str) -> None:
    """Ask each named broker. Exit code 0 if all of them answer and know the controller, otherwise 1.

    A broker that is not connected to a majority of the cluster knows no controller.
    """
    rows = []
    for server in bootstrap_server.split(","):
        try:
            host, port = address(server.strip())
            view = probe(host, port, timeout_s)
            problem = None if view.controller_id >= 0 else f"{server} knows no controller"
            brokers = sorted(view.brokers)
        except (ProbeError, ValueError) as error:
            problem, brokers = str(error), []
        rows.append({"address": server, "healthy": problem is None, "brokers": brokers, "problem": problem})
    if shape == "json":
        print_list("brokers", rows)
    else:
        for row in rows:
            click.echo(
                row["problem"] or f"{row['address']} is healthy and knows the brokers {row['brokers']}"
            )
    sys.exit(0 if all(row["healthy"] for row in rows) else 1)
