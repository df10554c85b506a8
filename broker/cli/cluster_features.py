"""`varve cluster features`: the features of a cluster and their finalized levels, with the output of kafka-features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import format_option, print_list
from broker.cli.start import parse_pairs
from broker.cli.tables import print_aligned

if TYPE_CHECKING:
    from broker.cli.wire_client import WireClient
    from protocol.messages.api_versions import ApiVersionsResponse

_API_VERSIONS_VERSION = 4
_UPDATE_FEATURES_VERSION = 2


@click.group(invoke_without_command=True)
@bootstrap_option
@format_option
@click.pass_context
def features(context: click.Context, bootstrap_server: str, shape: str) -> None:
    """Show the features of a cluster, or set the level of one.

    Clients use a feature as its finalized level says. With transaction.version 2, for example, they leave it to the
    brokers to add partitions to a transaction.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: {"bootstrap_server": bootstrap_server}}
        return
    from broker.cli.wire_client import WireClient

    answer = _ask(WireClient(bootstrap_server))
    levels = _finalized(answer)
    rows = [
        {
            "feature": each.name,
            "supported_min_version": each.min_version,
            "supported_max_version": each.max_version,
            "finalized_version_level": levels.get(each.name, 0),
            "epoch": answer.finalized_features_epoch,
        }
        for each in sorted(answer.supported_features, key=lambda each: each.name)
    ]
    if shape == "json":
        print_list("features", rows)
        return
    columns = ("Feature", "SupportedMinVersion", "SupportedMaxVersion", "FinalizedVersionLevel", "Epoch")
    print_aligned(
        [[f"{name}: {value}" for name, value in zip(columns, row.values(), strict=True)] for row in rows]
    )


@features.command(name="set")
@click.argument("levels", metavar="NAME=LEVEL...", nargs=-1, required=True)
@bootstrap_option
def set_levels(levels: tuple[str, ...], bootstrap_server: str) -> None:
    """Set finalized levels. 0 switches a feature off. If one is refused, none is set.

    Clients learn the levels when they connect.
    """
    from broker.cli.wire_client import WireClient, check_error
    from broker.metadata.features import UpgradeType
    from protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    wanted = {name: _level(text) for name, text in parse_pairs(levels, "NAME=LEVEL").items()}
    client = WireClient(bootstrap_server)
    present = _finalized(_ask(client))
    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=UpgradeType.SAFE_DOWNGRADE if level < present.get(name, 0) else UpgradeType.UPGRADE,
        )
        for name, level in wanted.items()
    ]
    question = UpdateFeaturesRequest(feature_updates=updates)
    answer = client.ask(question, _UPDATE_FEATURES_VERSION, UpdateFeaturesResponse)
    check_error(answer.error_code, answer.error_message)
    for name, level in wanted.items():
        before = present.get(name, 0)
        if level == before:
            click.echo(f"{name} already has level {level}.")
        else:
            click.echo(f"{name} was {'downgraded' if level < before else 'upgraded'} to {level}.")


def _level(text: str) -> int:
    if not text.isdecimal() or int(text) > 32767:
        raise click.BadParameter(f"{text!r} is not a level", param_hint="NAME=LEVEL")
    return int(text)


def _ask(client: WireClient) -> ApiVersionsResponse:
    from broker.cli.wire_client import check_error
    from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    question = ApiVersionsRequest(client_software_name="varve-cli", client_software_version="1")
    answer = client.ask(question, _API_VERSIONS_VERSION, ApiVersionsResponse)
    check_error(answer.error_code, None)
    return answer


def _finalized(answer: ApiVersionsResponse) -> dict[str, int]:
    return {each.name: each.max_version_level for each in answer.finalized_features}
