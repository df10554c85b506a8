"""`varve cluster secret`: make the secret that the nodes of a cluster share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from broker.cli.root import CommandError


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this new file.")
@click.option(
    "--if-missing", is_flag=True, help="With --out: if the file is there already, keep it, and succeed."
)
def secret(out: Path | None, if_missing: bool) -> None:
    """Make a secret with which the nodes of a cluster prove themselves to each other.

    Only the owner of the file can read it. Copy it to every node, and name it there in the setting
    varve.cluster.secret. Without --out the secret is printed.
    """
    from broker.security.cluster_secret import SecretError, new_secret
    from broker.security.secret_file import load_secret, write_secret

    if out is None:
        if if_missing:
            raise click.UsageError("--if-missing needs --out")
        click.echo(new_secret(os.urandom))
        return
    try:
        write_secret(out, new_secret(os.urandom))
    except FileExistsError:
        if not if_missing:
            raise CommandError(f"{out} is there already") from None
        try:
            load_secret(str(out), None)
        except SecretError as error:
            raise CommandError(f"{out} is there already, but {error}") from None
        click.echo(f"{out} is there already.", err=True)
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror}") from None
    else:
        click.echo(f"The secret is in {out}. Copy it to every node.", err=True)
