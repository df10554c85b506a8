"""Many seeds, one after the other or on several processes; results come in the order of the seeds."""

from __future__ import annotations

import faulthandler
import gc
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from tests.simulator.mutations import MUTATIONS
from tests.simulator.run import Result, Variant, simulate
from tests.simulator.shrink import Shrunk, shrink
from tests.simulator.verdict import Verdict

#: Real time after which a seed hangs, which virtual time cannot notice: the process says where, and ends.
HANGS_AFTER_S = 300.0
#: Seeds that a process is given beforehand, so that none waits for the one that prints.
_AHEAD_PER_JOB = 4


class Outcome(NamedTuple):
    """What is left of a `Result` when it leaves its process."""

    seed: int
    line: str
    events: int
    virtual_s: float
    #: Positions of the faults that were made before it ended.
    faults: tuple[int, ...]
    verdict: Verdict | None
    report: str


def run_seed(seed: int, variant: Variant) -> Outcome:
    result = run(seed, variant)
    return Outcome(
        seed,
        result.line(),
        result.events,
        result.virtual_s,
        tuple(result.story),
        result.verdict,
        result.report() if result.failure is not None else "",
    )


def run(seed: int, variant: Variant) -> Result:
    """Garbage is collected behind each seed: during it the collector takes a fifth of the time, and finds little."""
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    gc.disable()
    try:
        mutation = None if variant.mutation is None else MUTATIONS[variant.mutation]
        return simulate(seed, mix=variant.mix, kept=variant.kept, mutation=mutation, is_off=variant.is_off)
    finally:
        gc.enable()
        gc.collect()
        faulthandler.cancel_dump_traceback_later()


def run_seeds(seeds: Iterable[int], variant: Variant, jobs: int) -> Iterator[Outcome]:
    """`seeds` may be endless. Raises BrokenProcessPool where a process died or hung."""
    if jobs == 1:
        for seed in seeds:
            yield run_seed(seed, variant)
        return
    with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as pool:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for seed in seeds:
                waiting.append(pool.submit(run_seed, seed, variant))
                if len(waiting) >= jobs * _AHEAD_PER_JOB:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group; only the process that prints has something to do then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def shrink_failure(outcome: Outcome, variant: Variant, limit_s: float) -> tuple[Shrunk, Variant]:
    """Fewer faults that break the same promise, searched for at most `limit_s` of real time (and one run more)."""
    end_s = time.monotonic() + limit_s

    def with_faults(kept: tuple[int, ...]) -> Variant:
        return replace(variant, kept=kept)

    def still_fails(kept: tuple[int, ...]) -> bool:
        verdict = run(outcome.seed, with_faults(kept)).verdict
        return verdict is not None and outcome.verdict is not None and verdict.is_like(outcome.verdict)

    shrunk = shrink(outcome.faults, still_fails, lambda: time.monotonic() > end_s)
    return shrunk, with_faults(shrunk.kept)
