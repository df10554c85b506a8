"""`python -m tests.simulator --seed N | --seeds A..B [--jobs 2] | --mutations [NAME...]`
(scripts/simulate). Exit code 1 on a violation."""

from __future__ import annotations

import argparse
import sys
import traceback
from multiprocessing import Pool

from tests.simulator.mutation_table import run_table
from tests.simulator.mutations import MUTATIONS
from tests.simulator.run import Result, simulate


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate", description="Whole clusters, simulated by seed."
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int)
    which.add_argument("--seeds", metavar="A..B", help="from A to B, both included")
    which.add_argument("--mutations", nargs="*", metavar="NAME", help="each rule off: the table MUTATIONS.md")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.mutations is not None:
        return _mutations(arguments.mutations)
    if arguments.seed is not None:
        first = last = arguments.seed
    else:
        first, last = (int(part) for part in arguments.seeds.split(".."))
    failures = 0
    with Pool(arguments.jobs) as pool:
        for text, is_failure in pool.imap(_run, range(first, last + 1)):
            print(text, flush=True)
            failures += is_failure
    print(f"{last - first + 1} seeds, {failures} failed")
    return 1 if failures else 0


def _mutations(names: list[str]) -> int:
    if unknown := [name for name in names if name not in MUTATIONS]:
        print(f"no mutation {', '.join(unknown)}; there are: {', '.join(MUTATIONS)}")
        return 2
    all_found = True
    for line, is_found in run_table(names):
        print(line, flush=True)
        all_found = all_found and is_found
    return 0 if all_found else 1


def _run(seed: int) -> tuple[str, bool]:
    result: Result = simulate(seed)
    if result.failure is None:
        return result.line(), False
    return result.report() + "\n" + "".join(traceback.format_exception(result.failure)), True


if __name__ == "__main__":
    sys.exit(main())
