"""Completion in the shell: commands and options by click, topics and groups by asking the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from broker.cli.bootstrap import default_bootstrap_server
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from broker.cli.wire_client import WireClient

#: Somebody waits at the terminal. No completion is better than a late one.
_TIMEOUT_S = 2.0
_LIST_GROUPS_VERSION = 4
_METADATA_VERSION = 8


def _completed(
    find: Callable[[WireClient], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from broker.cli.wire_client import WireClient

        try:
            server = context.params.get("bootstrap_server") or default_bootstrap_server()
            names = sorted(find(WireClient(server)))
        except CommandError:
            return []  # Without a cluster there is nothing to offer, and a message would land in the user's line.
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def _topics(client: WireClient) -> Iterable[str]:
    from protocol.messages.metadata import MetadataRequest, MetadataResponse

    everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client.ask(everything, _METADATA_VERSION, MetadataResponse, _TIMEOUT_S)
    return [topic.name for topic in answer.topics if topic.name and not topic.is_internal]


def _groups(client: WireClient) -> Iterable[str]:
    """Those that each broker coordinates."""
    from broker.cli.wire_client import ask_at
    from protocol.errors import ProtocolError
    from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from protocol.messages.metadata import MetadataRequest, MetadataResponse

    nothing = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    for broker in client.ask(nothing, _METADATA_VERSION, MetadataResponse, _TIMEOUT_S).brokers:
        try:
            question = ListGroupsRequest(states_filter=[])
            answer = ask_at(
                broker.host, broker.port, question, _LIST_GROUPS_VERSION, ListGroupsResponse, _TIMEOUT_S
            )
        except (OSError, ProtocolError):
            continue  # Those of the others are better than none.
        yield from (group.group_id for group in answer.groups)


complete_topic = _completed(_topics)
complete_group = _completed(_groups)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what turns completion on in a shell, of commands, options, topics and groups.

    In ~/.bashrc: eval "$(varve completion bash)". In ~/.zshrc: eval "$(varve completion zsh)". For fish:
    varve completion fish > ~/.config/fish/completions/varve.fish.
    """
    from broker.cli.root import varve

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(varve, {}, "varve", "_VARVE_COMPLETE").source())
