"""The command line: `scripts/simulate --help`.

Exit code 0: every seed passed (with --mutations: every rule was missed). 1: not so. 2: wrong arguments, or not all
seeds were run.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from tests.simulator.campaign import Outcome, run, run_seeds, shrink_failure
from tests.simulator.faults import FAULTS
from tests.simulator.mutation_table import run_table
from tests.simulator.mutations import MUTATIONS
from tests.simulator.run import Variant

#: How many failures are shrunk: a broken build fails everywhere, and should say so soon.
SHRUNK_FAILURES = 3
#: Real seconds between two lines of progress.
PROGRESS_S = 10.0


def main() -> int:
    options = _options()
    gc.freeze()  # modules are no garbage: the collection behind each seed need not look at them
    if options.mutations is not None:
        return _mutations(options.mutations)
    variant = Variant(options.mix, options.keep, options.mutate, not options.rule_on)
    seeds = _seeds(options)
    totals = _Totals(limit=len(seeds) if isinstance(seeds, range) else None)
    print(f"commit {_commit()}, seeds {_words(seeds)}", flush=True)
    is_cut_short = False
    try:
        for outcome in run_seeds(seeds, variant, options.jobs):
            totals.add(outcome)
            if outcome.verdict is not None:
                _report(outcome, variant, options.shrink_s if totals.failed <= SHRUNK_FAILURES else 0)
            elif not options.quiet:
                print(outcome.line, flush=True)
            if options.quiet:
                totals.show_progress()
    except KeyboardInterrupt:
        is_cut_short = not options.forever
        print("\ninterrupted")  # it may have come in the middle of a line
    except BrokenProcessPool:
        is_cut_short = True
        print(f"a process died or hung after seed {totals.last_seed}; stderr says where")
    print(totals.summary())
    if totals.failed:
        return 1
    return 2 if is_cut_short else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Whole clusters in virtual time, one seed each. A failure comes with its last events, the nodes' "
        "logs, what it broke, its faults in words, and the command that repeats it.",
        epilog=f"Kinds of fault: {', '.join(FAULTS)}. Rules that can be switched off: {', '.join(MUTATIONS)}.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int)
    which.add_argument("--seeds", metavar="A..B", type=_range, help="from A to B, both included")
    which.add_argument("--fresh", metavar="COUNT", type=int, help="seeds that nobody has run before")
    which.add_argument("--forever", action="store_true", help="fresh seeds until Ctrl-C")
    which.add_argument(
        "--mutations",
        metavar="RULE",
        nargs="*",
        choices=MUTATIONS,
        help="each rule off: the table MUTATIONS.md",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument(
        "--mix", metavar="KIND,KIND", type=_mix, help="these kinds of fault, not the seed's choice"
    )
    parser.add_argument("--keep", metavar="0,3,7", type=_positions, help="of the seed's faults, by position")
    parser.add_argument("--mutate", metavar="RULE", choices=MUTATIONS, help="with a rule switched off")
    parser.add_argument("--rule-on", action="store_true", help="as --mutate does it, but the rule stays on")
    parser.add_argument("--quiet", action="store_true", help="failures, and now and then how far it is")
    parser.add_argument(
        "--shrink-s",
        type=float,
        default=20.0,
        help="real seconds to look for fewer faults per failure (20; 0: never)",
    )
    options = parser.parse_args()
    if options.keep is not None and options.seed is None:
        parser.error("--keep needs --seed: each seed has faults of its own")
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    return options


def _mutations(names: list[str]) -> int:
    all_found = True
    for line, is_found in run_table(names):
        print(line, flush=True)
        all_found = all_found and is_found
    return 0 if all_found else 1


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    seeds = range(int(first), int(last) + 1)
    if not seeds:
        raise ValueError(text)
    return seeds


def _mix(text: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in FAULTS:
            raise argparse.ArgumentTypeError(f"there is no fault {kind!r}; there are {', '.join(FAULTS)}")
    return kinds


def _positions(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",") if part.strip()}))


def _seeds(options: argparse.Namespace) -> Iterable[int]:
    if options.seed is not None:
        return range(options.seed, options.seed + 1)
    if options.seeds is not None:
        return options.seeds  # type: ignore[no-any-return]
    # The outermost script: real entropy enters here, is printed, and from then on the seed decides everything.
    first = int.from_bytes(os.urandom(5), "big")
    return itertools.count(first) if options.forever else range(first, first + options.fresh)


def _words(seeds: Iterable[int]) -> str:
    if isinstance(seeds, range):
        return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}..{seeds[-1]}"
    assert isinstance(seeds, itertools.count)
    return f"from {repr(seeds).removeprefix('count(').removesuffix(')')}"


def _commit() -> str:
    command = ("git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _report(outcome: Outcome, variant: Variant, shrink_s: float) -> None:
    print(f"\n==== {outcome.report}\ncommit: {_commit()}", flush=True)
    if shrink_s and outcome.faults:
        shrunk, smaller = shrink_failure(outcome, variant, shrink_s)
        rest = "each of them is needed" if shrunk.is_minimal else "time was up before it was minimal"
        print(
            f"shrunk from {len(outcome.faults)} to {len(shrunk.kept)} faults in {shrunk.tried} runs; {rest}:",
            *run(outcome.seed, smaller).story.values(),
            f"repeat it: {smaller.command(outcome.seed)}",
            sep="\n",
        )
    print("====\n", flush=True)


@dataclass
class _Totals:
    #: How many there are to run; None: no end.
    limit: int | None
    seeds: int = 0
    failed: int = 0
    events: int = 0
    virtual_s: float = 0.0
    last_seed: int | None = None

    def __post_init__(self) -> None:
        self._started_s = self._shown_s = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += outcome.verdict is not None
        self.events += outcome.events
        self.virtual_s += outcome.virtual_s
        self.last_seed = outcome.seed

    def show_progress(self) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_S:
            self._shown_s = now_s
            of = "" if self.limit is None else f" of {self.limit}"
            print(f"{self.seeds}{of} seeds, {self.failed} failed, at seed {self.last_seed}", flush=True)

    def summary(self) -> str:
        elapsed_s = time.monotonic() - self._started_s
        return (
            f"{self.seeds} seeds, {self.failed} failed; {self.virtual_s:,.0f} virtual seconds in "
            f"{elapsed_s:,.1f} real ones, {self.events / max(elapsed_s, 1e-9):,.0f} events/s"
        )


if __name__ == "__main__":
    sys.exit(main())
