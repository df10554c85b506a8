"""The tables of a run that the driver writes: small ones, each a Parquet file in the run's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_table(file: Path, table: pa.Table) -> None:
    """Write it whole, over what is there: who reads meanwhile has the one or the other."""
    unfinished = file.with_name(f".{file.name}")
    pq.write_table(table, unfinished)
    os.replace(unfinished, file)
