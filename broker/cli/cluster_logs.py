"""`varve cluster logs`: what the nodes of the cluster on this machine print."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

import click

from broker.cli.base_dir import base_dir_option, existing_cluster
from broker.cli.local_cluster import LocalNode
from broker.cli.root import CommandError

_POLL_S = 0.2
#: Read at the end of a file to find its last lines.
_TAIL_BYTES = 1 << 20


@click.command()
@click.argument("node_ids", nargs=-1, type=int, metavar="[NODE]...")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many of the last lines of each node are shown.",
)
@base_dir_option
def logs(node_ids: tuple[int, ...], follow: bool, lines: int, base_dir: Path) -> None:
    """Show the last lines that the nodes of the cluster on this machine have printed since their start."""
    local = existing_cluster(base_dir)
    nodes = {node.node_id: node for node in local.nodes}
    if unknown := sorted(set(node_ids) - nodes.keys()):
        raise CommandError(f"there is no node {unknown[0]} in {base_dir}")
    followed = [_Followed(nodes[node_id]) for node_id in sorted(set(node_ids) or nodes)]
    for each in followed:
        each.print_last(lines)
    while follow:
        time.sleep(_POLL_S)
        for each in followed:
            each.print_new()


class _Followed:
    """The log of a node, read from where we were."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._file: BinaryIO | None = None
        self._incomplete = b""

    def print_last(self, lines: int) -> None:
        file = self._opened()
        if file is None:
            return
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        found = self._complete_lines(file.read())
        self._print(found[max(0, len(found) - lines) :])

    def print_new(self) -> None:
        file = self._opened()
        if file is not None:
            self._print(self._complete_lines(file.read()))
        if self._is_replaced():
            # The old file was read to its end, and what comes is in the new one.
            self._file, self._incomplete = None, b""
            self.print_new()

    def _opened(self) -> BinaryIO | None:
        """None: the node was never started."""
        if self._file is None and self._node.log.exists():
            self._file = self._node.log.open("rb")
        return self._file

    def _is_replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            return os.fstat(self._file.fileno()).st_ino != self._node.log.stat().st_ino
        except FileNotFoundError:
            return False  # The new file comes in a moment.

    def _complete_lines(self, read: bytes) -> list[bytes]:
        *complete, self._incomplete = (self._incomplete + read).split(b"\n")
        return complete

    def _print(self, lines: list[bytes]) -> None:
        for line in lines:
            click.echo(f"node {self._node.node_id} | {line.decode(errors='replace')}")
