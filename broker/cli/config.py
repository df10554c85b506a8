"""`varve config describe|alter`: settings of topics, brokers and groups, with the output of kafka-configs."""

from __future__ import annotations

from typing import NamedTuple

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import format_option, print_list
from broker.cli.root import CommandError
from broker.cli.start import parse_pairs
from broker.cli.wire_client import WireClient
from broker.config.layers import ConfigSource
from broker.metadata.alterations import AlterOperation
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, _GROUP = 2, 4, 32

#: The sources of a value, as kafka-configs prints them.
_SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
}
_SET_BY_CLIENTS = frozenset(_SOURCES) - {ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT}


class _Resource(NamedTuple):
    type: int
    name: str

    @property
    def title(self) -> str:
        if self.type != BROKER:
            return f"{'topic' if self.type == TOPIC else 'group'} {self.name}"
        return f"broker {self.name}" if self.name else "brokers in the cluster"


@click.group()
def config() -> None:
    """Show and change settings of topics, brokers and groups while the cluster runs."""


def _resource(topic: str | None, broker: int | None, broker_defaults: bool, group: str | None) -> _Resource:
    named = [
        _Resource(type_, name)
        for type_, name in (
            (TOPIC, topic),
            (BROKER, None if broker is None else str(broker)),
            (BROKER, "" if broker_defaults else None),
            (_GROUP, group),
        )
        if name is not None
    ]
    if len(named) != 1:
        raise click.UsageError("name exactly one of --topic, --broker, --broker-defaults and --group")
    return named[0]


@config.command()
@click.option("--topic", metavar="NAME", help="Show settings of this topic.")
@click.option("--broker", type=click.IntRange(0), metavar="ID", help="Show settings of this broker.")
@click.option("--broker-defaults", is_flag=True, help="Show the default settings of all brokers.")
@click.option("--group", metavar="NAME", help="Show settings of this consumer group.")
@click.option("--all", "show_all", is_flag=True, help="Include settings that have their default value.")
@bootstrap_option
@format_option
def describe(
    topic: str | None,
    broker: int | None,
    broker_defaults: bool,
    group: str | None,
    show_all: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Show settings and where their values come from."""
    resource = _resource(topic, broker, broker_defaults, group)
    settings = describe_resource(WireClient(bootstrap_server), resource.type, resource.name)
    rows = [row for row in settings if show_all or row.config_source in _SET_BY_CLIENTS]
    rows.sort(key=lambda row: row.name)
    if shape == "json":
        print_list("configs", [_json(row) for row in rows])
        return
    kind = "All" if show_all else "Default" if broker_defaults else "Dynamic"
    click.echo(f"{kind} configs for {resource.title} are:")
    for row in rows:
        synonyms = ", ".join(f"{_SOURCES[ConfigSource(x.source)]}:{x.name}={x.value}" for x in row.synonyms)
        value = "null" if row.is_sensitive else row.value
        click.echo(f"  {row.name}={value} sensitive={str(row.is_sensitive).lower()} synonyms={{{synonyms}}}")


def _json(row: DescribeConfigsResourceResult) -> dict[str, object]:
    return {
        "name": row.name,
        "value": row.value,
        "source": _SOURCES[ConfigSource(row.config_source)],
        "read_only": row.read_only,
    }


@config.command()
@click.option("--topic", metavar="NAME", help="Change settings of this topic.")
@click.option("--broker", type=click.IntRange(0), metavar="ID", help="Change settings of this broker.")
@click.option("--broker-defaults", is_flag=True, help="Change the default settings of all brokers.")
@click.option("--group", metavar="NAME", help="Change settings of this consumer group.")
@click.option("--add-config", multiple=True, metavar="KEY=VALUE", help="Set a value. Repeatable.")
@click.option(
    "--delete-config", multiple=True, metavar="KEY", help="Go back to the default value. Repeatable."
)
@click.option(
    "--append-config",
    multiple=True,
    metavar="KEY=VALUE",
    help="Add to the value of a list setting. Repeatable.",
)
@click.option(
    "--subtract-config",
    multiple=True,
    metavar="KEY=VALUE",
    help="Remove from the value of a list setting. Repeatable.",
)
@bootstrap_option
def alter(
    topic: str | None,
    broker: int | None,
    broker_defaults: bool,
    group: str | None,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    append_config: tuple[str, ...],
    subtract_config: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Change settings. If one change is refused, none is made."""
    resource = _resource(topic, broker, broker_defaults, group)
    operations: list[tuple[str, AlterOperation, str | None]] = []
    for texts, option, operation in (
        (add_config, "--add-config", AlterOperation.SET),
        (append_config, "--append-config", AlterOperation.APPEND),
        (subtract_config, "--subtract-config", AlterOperation.SUBTRACT),
    ):
        operations += [(name, operation, value) for name, value in parse_pairs(texts, option).items()]
    operations += [(name, AlterOperation.DELETE, None) for name in delete_config]
    if not operations:
        raise click.UsageError("nothing to change: use --add-config or --delete-config")
    alter_resource(WireClient(bootstrap_server), resource.type, resource.name, operations)
    which = "default config" if broker_defaults else "config"
    click.echo(f"Completed updating {which} for {resource.title}.")


def describe_resource(
    client: WireClient, resource_type: int, name: str
) -> list[DescribeConfigsResourceResult]:
    """All settings, those of a broker as it has them itself. Raises CommandError if the cluster refuses."""
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    if resource_type == BROKER and name:
        answer = client.ask_broker(int(name), request, 4, DescribeConfigsResponse)
    else:
        answer = client.ask(request, 4, DescribeConfigsResponse)
    (result,) = answer.results
    _check_result(_Resource(resource_type, name), result.error_code, result.error_message)
    return result.configs


def alter_resource(
    client: WireClient,
    resource_type: int,
    name: str,
    operations: list[tuple[str, AlterOperation, str | None]],
) -> None:
    """Raises CommandError if the cluster refuses."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in operations
                ],
            )
        ]
    )
    if resource_type == BROKER and name:
        answer = client.ask_broker(int(name), request, 1, IncrementalAlterConfigsResponse)
    else:
        answer = client.ask(request, 1, IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    _check_result(_Resource(resource_type, name), result.error_code, result.error_message)


def alter_topic(client: WireClient, name: str, configs: dict[str, str], deleted: tuple[str, ...]) -> None:
    """Set and delete settings of a topic. Raises CommandError."""
    operations: list[tuple[str, AlterOperation, str | None]] = [
        (key, AlterOperation.SET, value) for key, value in configs.items()
    ]
    operations += [(key, AlterOperation.DELETE, None) for key in deleted]
    alter_resource(client, TOPIC, name, operations)


def _check_result(resource: _Resource, code: int, message: str | None) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandError(f"Topic '{resource.name}' does not exist")
    if code:
        raise CommandError(f"{message or 'refused'} ({ErrorCode(code).name})")
