"""`--base-dir`: the cluster on this machine that a command is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.cli.local_cluster import DEFAULT_BASE_DIR, LocalCluster, LocalClusterError
from broker.cli.root import CommandError

F = TypeVar("F", bound=Callable[..., Any])


def base_dir_option(command: F) -> F:
    return click.option(
        "--base-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=DEFAULT_BASE_DIR,
        show_default=True,
        help="The directory of the cluster and its data.",
    )(command)


def existing_cluster(base_dir: Path) -> LocalCluster:
    """Raises CommandError if there is none."""
    try:
        local = LocalCluster.load(base_dir)
    except LocalClusterError as error:
        raise CommandError(str(error)) from None
    if local is None:
        raise CommandError(f"there is no cluster in {base_dir}; `varve cluster up` starts one")
    return local
