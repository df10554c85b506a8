"""The command `varve`. A subcommand is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click

#: name -> (module, attribute, line in the help). So `varve --help` imports no subcommand.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "start": ("broker.cli.start", "start", "Run one node in the foreground."),
    "cluster": (
        "broker.cli.cluster",
        "cluster",
        "Run a cluster on this machine, or manage any cluster.",
    ),
    "broker": ("broker.cli.broker", "broker", "Remove a broker from the cluster."),
    "topic": ("broker.cli.topic", "topic", "Create, list, describe, change and delete topics."),
    "explain": (
        "broker.cli.explain",
        "explain",
        "Explain why a topic is not compacted, or what becomes of a record.",
    ),
    "verify": ("broker.cli.verify", "verify", "Check that the replicas of a topic say the same."),
    "config": ("broker.cli.config", "config", "Describe and alter settings of topics, brokers and groups."),
    "group": ("broker.cli.group", "group", "List, describe, reset and delete consumer groups."),
    "txn": ("broker.cli.txn", "txn", "List, describe and abort transactions."),
    "produce": ("broker.cli.produce", "produce", "Write the lines of standard input to a topic."),
    "consume": ("broker.cli.consume", "consume", "Print the records of a topic."),
    "demo": ("broker.cli.demo", "demo", "Show on real brokers what coordinated compaction is good for."),
    "completion": (
        "broker.cli.completion",
        "completion",
        "Print what turns completion on in a shell.",
    ),
    "health": (
        "broker.cli.health",
        "health",
        "Check that brokers answer and know the controller (exit code 0).",
    ),
}


#: How long one request to the cluster may take. A change of leader takes about 2 s.
TIMEOUT_S = 15.0


class CommandError(click.ClickException):
    """The command failed. It prints one line on standard error and exits with 1."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"varve: {self.format_message()}", err=True)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        for name, (_, _, line) in _COMMANDS.items():
            yield name, line


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"varve {version('varve')}")
        ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def varve() -> None:
    """Varve, a Kafka-protocol broker cluster.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. `cluster health` exits with 10 if the cluster is not
    healthy, `verify replicas` if no replica differs, but some could not be compared.
    """
