"""`varve topic offsets|purge`: show the offsets of partitions, and delete their oldest records. The output is that of
kafka-get-offsets and kafka-delete-records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.clients import admin_client, refusal
from broker.cli.completion import complete_topic
from broker.cli.confirm import confirm, named, yes_option
from broker.cli.output import format_option, print_list
from broker.cli.root import TIMEOUT_S, CommandError
from broker.metadata.ids import INTERNAL_TOPICS

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

#: The special timestamps of ListOffsets, by their names in Kafka's tools.
_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}
#: The offset in DeleteRecords that means all records.
_ALL = -1


class Time(click.ParamType[int]):
    """A special timestamp by name or number, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            time_ms = _TIMES[value] if value in _TIMES else int(value)
        except ValueError:
            self.fail(f"{value!r} is neither {', '.join(_TIMES)} nor milliseconds since 1970", param, ctx)
        if time_ms < min(_TIMES.values()):
            self.fail(f"{value} is not a special timestamp", param, ctx)
        return time_ms


class Numbers(click.ParamType[tuple[int, ...]]):
    """Partition numbers: 0,1,2."""

    name = "numbers"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        numbers = value.split(",")
        if not all(number.isdecimal() for number in numbers):
            self.fail(f"{value!r} does not look like 0,1,2", param, ctx)
        return tuple(dict.fromkeys(map(int, numbers)))


partitions_option = click.option(
    "--partitions", type=Numbers(), metavar="N,N", help="Only these partitions.  [default: all]"
)


@click.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topic)
@partitions_option
@click.option(
    "--time",
    "time_ms",
    type=Time(),
    default="latest",
    metavar="TIME",
    help="latest, earliest, max-timestamp, or milliseconds since 1970.  [default: latest]",
)
@bootstrap_option
@format_option
def offsets(
    names: tuple[str, ...],
    partitions: tuple[int, ...] | None,
    time_ms: int,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Show offsets of partitions.

    All topics are shown if none is named. Each line is TOPIC:PARTITION:OFFSET. OFFSET is empty if there is no record at
    or after the time.
    """
    admin = admin_client(bootstrap_server)
    wanted = _partitions(admin, names, partitions, bootstrap_server)
    found = _list_offsets(admin, wanted, time_ms, bootstrap_server)
    if shape == "json":
        print_list(
            "partitions", [{"topic": x.topic, "partition": x.partition, "offset": y} for x, y in found]
        )
        return
    for place, offset in found:
        click.echo(f"{place.topic}:{place.partition}:{'' if offset is None else offset}")


@click.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topic)
@partitions_option
@click.option(
    "--before-offset", type=click.IntRange(0), metavar="OFFSET", help="Delete the records below this offset."
)
@click.option("--all", "all_records", is_flag=True, help="Delete all records.")
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='A file as for kafka-delete-records: {"partitions": [{"topic": "t", "partition": 0, "offset": 3}]}.',
)
@yes_option
@bootstrap_option
@format_option
def purge(
    names: tuple[str, ...],
    partitions: tuple[int, ...] | None,
    before_offset: int | None,
    all_records: bool,
    offset_json_file: Path | None,
    is_sure: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Delete the oldest records of partitions for good. Show the low watermark of each: where it begins now."""
    if [before_offset is not None, all_records, offset_json_file is not None].count(True) != 1:
        raise click.UsageError("use exactly one of --before-offset, --all and --offset-json-file")
    if bool(names) == (offset_json_file is not None):
        raise click.UsageError("name topics in the command or in --offset-json-file, not in both")
    if all_records:
        confirm(f"Delete all records of {named([f'topic {name}' for name in names])}", is_sure=is_sure)
    admin = admin_client(bootstrap_server)
    if offset_json_file is not None:
        wanted = _from_file(offset_json_file)
    else:
        wanted = _partitions(admin, names, partitions, bootstrap_server)
        for place in wanted:
            place.offset = _ALL if before_offset is None else before_offset
    deleted, failures = _delete_records(admin, wanted)
    if shape == "json":
        print_list("partitions", deleted)
    else:
        for entry in deleted:
            click.echo(
                f"partition: {entry['topic']}-{entry['partition']}\tlow_watermark: {entry['low_watermark']}"
            )
    if failures:
        raise CommandError("\n".join(failures))


def _partitions(
    admin: AdminClient, names: Sequence[str], numbers: Sequence[int] | None, bootstrap_server: str
) -> list[TopicPartition]:
    """The named partitions, in order. Raises CommandError if one does not exist."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as failure:
        raise refusal(failure.args[0], bootstrap_server) from None
    found = []
    for name in dict.fromkeys(names) or sorted(topics.keys() - INTERNAL_TOPICS):
        if name not in topics:
            raise CommandError(f"Topic '{name}' does not exist")
        present = sorted(topics[name].partitions)
        missing = [number for number in numbers or () if number not in present]
        if missing and names:
            raise CommandError(f"Topic '{name}' has no partition {missing[0]}")
        found += [TopicPartition(name, number) for number in present if numbers is None or number in numbers]
    return found


def _list_offsets(
    admin: AdminClient, wanted: Sequence[TopicPartition], time_ms: int, bootstrap_server: str
) -> list[tuple[TopicPartition, int | None]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import OffsetSpec

    if not wanted:
        return []
    specs: dict[int, Any] = {
        _TIMES["latest"]: OffsetSpec.latest(),
        _TIMES["earliest"]: OffsetSpec.earliest(),
        _TIMES["max-timestamp"]: OffsetSpec.max_timestamp(),
    }
    spec = specs[time_ms] if time_ms in specs else OffsetSpec.for_timestamp(time_ms)
    futures = admin.list_offsets(dict.fromkeys(wanted, spec), request_timeout=TIMEOUT_S)
    answers = {(place.topic, place.partition): future for place, future in futures.items()}
    found: list[tuple[TopicPartition, int | None]] = []
    for place in wanted:
        try:
            offset = answers[place.topic, place.partition].result().offset
        except KafkaException as failure:
            raise refusal(failure.args[0], bootstrap_server) from None
        found.append((place, offset if offset >= 0 else None))
    return found


def _from_file(path: Path) -> list[TopicPartition]:
    from confluent_kafka import TopicPartition

    try:
        entries = json.loads(path.read_text())["partitions"]
        return [TopicPartition(str(x["topic"]), int(x["partition"]), int(x["offset"])) for x in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{path} does not have the format that --help shows: {error!r}") from None


def _delete_records(
    admin: AdminClient, wanted: Sequence[TopicPartition]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The new low watermarks, and the errors of refused partitions. A refused one does not stop the others."""
    from confluent_kafka import KafkaException

    deleted: list[dict[str, Any]] = []
    failures: list[str] = []
    if not wanted:
        return deleted, failures
    futures = admin.delete_records(list(wanted), request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)
    for place, future in futures.items():
        try:
            low_watermark = future.result().low_watermark
        except KafkaException as failure:
            error = failure.args[0]
            failures.append(
                f"partition: {place.topic}-{place.partition}\terror: {error.str()} ({error.name()})"
            )
        else:
            deleted.append(
                {"topic": place.topic, "partition": place.partition, "low_watermark": low_watermark}
            )
    return deleted, failures
