"""The entry point of `python -m broker.cli`, which the installed command `varve` runs."""

from __future__ import annotations

from broker.cli.root import varve

if __name__ == "__main__":
    varve(prog_name="varve")
