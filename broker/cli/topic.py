"""`varve topic create|list|describe|alter|add-partitions|delete`, with the output of Kafka's kafka-topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from broker.cli.clients import admin_client, bootstrap_option, format_option, refusal
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.start import parse_pairs
from broker.cli.topic_compact import compact
from broker.cli.topic_compaction import add_compaction, print_compaction
from broker.cli.topic_offsets import add_offsets, open_transaction_lines
from broker.cli.topic_records import offsets as offsets_command
from broker.cli.topic_records import purge
from broker.metadata.ids import INTERNAL_TOPICS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient


@click.group()
def topic() -> None:
    """Create, list, describe, change and delete topics; show, delete and compact records."""


topic.add_command(offsets_command)
topic.add_command(purge)
topic.add_command(compact)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions.  [default: num.partitions]")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Number of replicas.  [default: default.replication.factor]",
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@bootstrap_option
@format_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Create topics."""
    settings = parse_pairs(config, "--config")
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic

    requests = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            config=settings,
        )
        for name in dict.fromkeys(names)
    ]
    admin = admin_client(bootstrap_server)  # Kept, because pending requests end with it.
    futures = admin.create_topics(requests, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    ignored = KafkaError.TOPIC_ALREADY_EXISTS if if_not_exists else None
    _report("created", _outcomes(futures, ignored, bootstrap_server), shape)


_exclude_internal_option = click.option(
    "--exclude-internal", is_flag=True, help="Leave out internal topics, such as __consumer_offsets."
)


@topic.command(name="list")
@_exclude_internal_option
@bootstrap_option
@format_option
def list_topics(exclude_internal: bool, bootstrap_server: str, shape: str) -> None:
    """List the topics, one name on each line."""
    names = _names(admin_client(bootstrap_server), bootstrap_server, with_internal=not exclude_internal)
    click.echo(json.dumps(names) if shape == "json" else "\n".join(names), nl=shape == "json" or bool(names))


@topic.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="Show only partitions with an out-of-sync replica."
)
@click.option(
    "--offsets",
    is_flag=True,
    help="""Show the offsets of each partition, too: its start, its end, and its last stable offset, at which
    readers of committed data stop; and for which open transactions they wait there.""",
)
@click.option(
    "--compaction",
    is_flag=True,
    help="""Show how each partition stands with compaction: what of it is dirty, when it was compacted, up to which
    offsets, and which replica keeps tombstones and transaction markers from going, why, and since when.""",
)
@click.option(
    "--replicas", is_flag=True, help="With --compaction: a line for each replica; the leader has a *."
)
@_exclude_internal_option
@bootstrap_option
@format_option
def describe(
    names: tuple[str, ...],
    under_replicated_partitions: bool,
    offsets: bool,
    compaction: bool,
    replicas: bool,
    exclude_internal: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Show partitions, leaders and replicas of topics.

    All topics are shown if none is named. JSON is one object if one topic is named, otherwise a list.
    """
    if replicas and not compaction:
        raise click.UsageError("--replicas belongs to --compaction")
    admin = admin_client(bootstrap_server)
    wanted = list(dict.fromkeys(names)) or _names(admin, bootstrap_server, with_internal=not exclude_internal)
    descriptions = _describe(admin, wanted, bootstrap_server)
    if under_replicated_partitions:
        for description in descriptions:
            description["partitions"] = [
                p for p in description["partitions"] if len(p["isr"]) < len(p["replicas"])
            ]
    if offsets:
        add_offsets(admin, descriptions, bootstrap_server)
    states = add_compaction(descriptions, bootstrap_server) if compaction else []
    if shape == "json":
        click.echo(json.dumps(descriptions[0] if len(names) == 1 else descriptions))
        return
    for description in descriptions:
        if not under_replicated_partitions:
            click.echo(_headline(description))
        if offsets or not compaction:
            for partition in description["partitions"]:
                click.echo(_partition_line(description["topic"], partition))
        if compaction:
            of_topic = [state for state in states if state.topic == description["topic"]]
            print_compaction(of_topic, with_replicas=replicas)


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions", type=click.IntRange(1), help="The new number of partitions. It cannot be reduced."
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting. Repeatable.")
@click.option(
    "--delete-config", multiple=True, metavar="KEY", help="Go back to the default value. Repeatable."
)
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Change settings of a topic, or add partitions."""
    from broker.cli.config import alter_topic
    from broker.cli.wire_client import WireClient

    settings = parse_pairs(config, "--config")
    if not (settings or delete_config or partitions):
        raise click.UsageError("nothing to change: use --partitions, --config or --delete-config")
    if settings or delete_config:
        alter_topic(WireClient(bootstrap_server), name, settings, delete_config)
    if partitions:
        _create_partitions(admin_client(bootstrap_server), {name: partitions}, bootstrap_server)
    click.echo(f"Altered topic {name}.")


@topic.command(name="add-partitions")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--num", type=click.IntRange(1), required=True, help="How many partitions to add to each topic."
)
@bootstrap_option
def add_partitions(names: tuple[str, ...], num: int, bootstrap_server: str) -> None:
    """Add partitions to topics. Keys may belong to other partitions afterwards."""
    admin = admin_client(bootstrap_server)
    present = {d["topic"]: d["partition_count"] for d in _describe(admin, list(names), bootstrap_server)}
    _create_partitions(admin, {name: count + num for name, count in present.items()}, bootstrap_server)
    for name, count in present.items():
        click.echo(f"Topic {name} has {count + num} partitions.")


def _create_partitions(admin: AdminClient, counts: dict[str, int], bootstrap_server: str) -> None:
    from confluent_kafka.admin import NewPartitions

    requests = [NewPartitions(name, count) for name, count in counts.items()]
    futures = admin.create_partitions(requests, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    _outcomes(futures, None, bootstrap_server)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@bootstrap_option
@format_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap_server: str, shape: str) -> None:
    """Delete topics with all their records."""
    from confluent_kafka import KafkaError

    admin = admin_client(bootstrap_server)  # Kept, because pending requests end with it.
    futures = admin.delete_topics(
        list(dict.fromkeys(names)), operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
    )
    ignored = KafkaError.UNKNOWN_TOPIC_OR_PART if if_exists else None
    _report("deleted", _outcomes(futures, ignored, bootstrap_server), shape)


def _outcomes(futures: dict[str, Future[Any]], ignored: int | None, bootstrap_server: str) -> dict[str, bool]:
    """Whether the request succeeded, for each topic. False if its error is `ignored`. Raises CommandError for any other
    error."""
    from confluent_kafka import KafkaException

    outcomes = {}
    for name, future in futures.items():
        try:
            future.result()
            outcomes[name] = True
        except KafkaException as failure:
            if failure.args[0].code() != ignored:
                raise _refusal(name, failure, bootstrap_server) from None
            outcomes[name] = False
    return outcomes


def _report(verb: str, outcomes: dict[str, bool], shape: str) -> None:
    if shape == "json":
        click.echo(json.dumps([{"topic": name, verb: is_done} for name, is_done in outcomes.items()]))
        return
    for name, is_done in outcomes.items():
        if is_done:
            click.echo(f"{verb.capitalize()} topic {name}.")


def _refusal(name: str, failure: KafkaException, bootstrap_server: str) -> CommandError:
    from confluent_kafka import KafkaError

    if failure.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return CommandError(f"Topic '{name}' does not exist")
    return refusal(failure.args[0], bootstrap_server)


def _names(admin: AdminClient, bootstrap_server: str, *, with_internal: bool = True) -> list[str]:
    from confluent_kafka import KafkaException

    try:
        names = admin.list_topics(timeout=TIMEOUT_S).topics
        return sorted(name for name in names if with_internal or name not in INTERNAL_TOPICS)
    except KafkaException as failure:
        raise refusal(failure.args[0], bootstrap_server) from None


def _describe(admin: AdminClient, names: list[str], bootstrap_server: str) -> list[dict[str, Any]]:
    from confluent_kafka import KafkaException, TopicCollection

    if not names:
        return []
    described = []
    settings = _settings(admin, names, bootstrap_server)
    futures = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
    for name, future in futures.items():
        try:
            found = future.result()
        except KafkaException as failure:
            raise _refusal(name, failure, bootstrap_server) from None
        partitions = [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader and partition.leader.id >= 0 else None,
                "replicas": [replica.id for replica in partition.replicas],
                "isr": [replica.id for replica in partition.isr],
            }
            for partition in sorted(found.partitions, key=lambda partition: partition.id)
        ]
        described.append(
            {
                "topic": name,
                # The client library uses the other alphabet of base64.
                "topic_id": str(found.topic_id).replace("+", "-").replace("/", "_"),
                "partition_count": len(partitions),
                "replication_factor": len(partitions[0]["replicas"]) if partitions else 0,
                "configs": settings.get(name, {}),
                "partitions": partitions,
            }
        )
    return described


def _settings(admin: AdminClient, names: list[str], bootstrap_server: str) -> dict[str, dict[str, str]]:
    """The settings of each topic that are not defaults. Empty if the cluster does not support the request."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource

    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    settings: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
        try:
            entries = future.result().values()
        except KafkaException as failure:
            code = failure.args[0].code()
            if code in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNKNOWN_TOPIC_OR_PART):
                continue  # The request about partitions reports an unknown topic.
            raise refusal(failure.args[0], bootstrap_server) from None
        settings[resource.name] = {entry.name: entry.value for entry in entries if not entry.is_default}
    return settings


def _headline(description: dict[str, Any]) -> str:
    configs = ",".join(f"{key}={value}" for key, value in description["configs"].items())
    return (
        f"Topic: {description['topic']}\tTopicId: {description['topic_id']}"
        f"\tPartitionCount: {description['partition_count']}"
        f"\tReplicationFactor: {description['replication_factor']}\tConfigs: {configs}"
    )


def _partition_line(name: str, partition: dict[str, Any]) -> str:
    """The line that kafka-topics prints, because scripts parse it. Offsets come at its end."""
    leader = "none" if partition["leader"] is None else partition["leader"]
    replicas, isr = (",".join(map(str, partition[key])) for key in ("replicas", "isr"))
    line = (
        f"\tTopic: {name}\tPartition: {partition['partition']}\tLeader: {leader}"
        f"\tReplicas: {replicas}\tIsr: {isr}\tElr: \tLastKnownElr: "
    )
    if "end_offset" in partition:
        line += f"\tStartOffset: {partition['start_offset']}\tEndOffset: {partition['end_offset']}"
        line += f"\tLastStableOffset: {partition['last_stable_offset']}"
        line += "".join(f"\n\t\t{each}" for each in open_transaction_lines(partition))
    return line
