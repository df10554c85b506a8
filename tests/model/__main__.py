"""Explores the model and prints its tables: scripts/model (--help)."""

from __future__ import annotations

import argparse
import sys

from tests.model import table
from tests.model.fences import FENCES
from tests.model.worlds import WIDE_WORLDS, WORLDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/model", description=__doc__)
    parser.add_argument("--wide", action="store_true", help="the worlds with wider limits, too (minutes)")
    parser.add_argument("--write", action="store_true", help="write the tables into tests/model/README.md")
    arguments = parser.parse_args()
    is_right = True
    world_rows = []
    for world in WORLDS:
        result = table.explore_all_on(world)
        is_right &= result.violation is None
        world_rows.append(table.world_row(world, result))
        print(world_rows[-1], flush=True)
    fence_rows = []
    for fence in FENCES:
        result = fence.search()
        is_right &= (result.violation is None) == fence.is_covered
        fence_rows.append(table.fence_row(fence, result))
        print(fence_rows[-1], flush=True)
    if arguments.wide:
        for world in WIDE_WORLDS:
            result = table.explore_all_on(world)
            is_right &= result.violation is None
            print(table.world_row(world, result), flush=True)
    if arguments.write:
        table.write("worlds", table.worlds_table(world_rows))
        table.write("fences", table.fences_table(fence_rows))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
