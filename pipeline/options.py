"""Options that several commands take, and their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click


class RunFolder(click.ParamType[Path]):
    """A folder on a file system of this machine, which may be a shared one: a path, or a `file:` URI."""

    name = "folder"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if isinstance(value, Path):
            return value
        uri = urlsplit(value)
        if uri.scheme == "file" and uri.netloc in ("", "localhost"):
            return Path(unquote(uri.path))
        if uri.scheme:
            hint = (
                "; executors can write to an object store by --deliveries" if _takes_deliveries(ctx) else ""
            )
            self.fail(f"{value!r}: only a folder that is mounted here can hold a run{hint}", param, ctx)
        return Path(value)


def _takes_deliveries(ctx: click.Context | None) -> bool:
    return ctx is not None and any(each.name == "deliveries" for each in ctx.command.params)


def _uri(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not urlsplit(value).scheme:
        raise click.BadParameter(
            f"{value!r} is no URI, such as s3a://bucket/runs/001 or hdfs://name/runs/001"
        )
    return value


RUN_FOLDER = RunFolder()
DELIVERIES = click.option(
    "--deliveries",
    metavar="URI",
    callback=_uri,
    help="A new folder that Spark's executors can write to, where --out is not mounted on their machines.",
)
RATE = click.FloatRange(min=0, min_open=True)
BOOTSTRAP_SERVER = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,...", help="Where the cluster answers."
)
SIZES = (
    click.option("--record-size", default=1024, show_default=True, help="Bytes of each value."),
    click.option("--keys", default=1000, show_default=True, help="Distinct keys."),
    click.option("--producers", default=2, show_default=True, help="Producers, each owning its keys."),
    click.option("--seed", default=1, show_default=True, help="Decides all records."),
    click.option(
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        show_default=True,
    ),
)


def _settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = dict(value.partition("=")[::2] for value in values)
    if any("=" not in value for value in values):
        raise click.BadParameter("a setting is KEY=VALUE")
    return settings


PRODUCER_CONFIG = click.option(
    "--producer-config",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings,
    help="A setting of the producers, by librdkafka's name, e.g. batch.size=65536; it wins. Repeatable.",
)
SPARK = (
    click.option(
        "--master", help="Spark's master: spark://HOST:PORT, yarn, k8s://...  [default: this machine]"
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_settings,
        help="A setting of Spark; repeatable.",
    ),
)


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where Spark runs."""
    for option in reversed(SPARK):
        command = option(command)
    return command


def sizes(command: Callable[..., None]) -> Callable[..., None]:
    """The options that describe a run's records."""
    for option in reversed(SIZES):
        command = option(command)
    return command
