"""A broker with one rule switched off, to see that the nemesis notices.

    python -m tests.integration.faults.broken_node RULE ...

What follows RULE is what `varve` takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from broker.cli.root import varve
from broker.groups.offsets import Offsets
from broker.serving.fetch_scan import FetchScan
from tests.simulator.mutations.switch import replaced


def _serve_everything(init: Callable[..., None]) -> object:
    def made(self: FetchScan, *arguments: Any) -> None:
        init(self, *arguments)
        self._is_committed = False

    return made


def _count_all_offsets(end_transaction: Callable[..., Iterator[None]]) -> object:
    def ended(self: Offsets, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        del is_commit
        return end_transaction(self, producer_id, is_commit=True)

    return ended


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "readers of committed data get nothing else": lambda: replaced(FetchScan, "__init__", _serve_everything),
    "offsets of aborted transactions are dropped": lambda: replaced(
        Offsets, "end_transaction", _count_all_offsets
    ),
}


if __name__ == "__main__":
    rule = sys.argv.pop(1)
    with RULES[rule]():
        varve(prog_name="varve")
