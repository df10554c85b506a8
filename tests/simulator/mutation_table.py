"""The proof that the simulator sees what the rules prevent: each rule off, and how many seeds it takes until somebody
notices (`scripts/simulate --mutations [NAME...]`; the table is tests/simulation/MUTATIONS.md)."""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from storage.errors import CorruptLogError
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.disk import DiskFaults
from tests.simulator.mutations import MUTATIONS
from tests.simulator.mutations.kind import Mutation
from tests.simulator.run import simulate
from tests.simulator.verdict import Verdict, Witness, causes, verdict_of
from tests.storage.test_log_through_power_cuts import PromiseBrokenError
from tests.storage.test_log_through_power_cuts import run as run_one_log

TABLE = Path(__file__).parents[1] / "simulation" / "MUTATIONS.md"
#: Where the searches begin, so that a lucky seed does not make a mutation look easy.
STARTS = (1, 1001, 2001, 3001, 4001)
#: What one log's life ends with, by exception.
ONE_LOG: dict[type[BaseException], str] = {
    PromiseBrokenError: "what was durable is not there, or not in its place",
    CorruptLogError: "a log on a sound disk is refused",
}

_HEAD = """\
# Every rule off once

Each row: a rule of `replication.md`, switched off in the product for the time of a run
(`tests/simulator/mutations/`), and how many seeds it takes until an invariant, a client or the demand for progress
notices: median and maximum over the searches from the seeds {starts}. "Seen by the product" counts the seeds of
these searches that ended in an assertion of the product's own: good, but no proof, so the search went on. With the
rule on, the same seeds find nothing (`tests/simulation/test_mutations.py`, a few of them). A rule with a story
meets its moment by a schedule written for it, in which the seed decides the details; a rule by a nemesis in random
moments of a certain kind; the others by the faults of the plan alone, of the kinds that are named or of those that each
seed chooses, as in `scripts/simulate --seeds`.

Written by `scripts/simulate --mutations`; named ones replace their own rows only.

| rule | what it says | how it is met | seeds, median | maximum | who notices | seen by the product | CPU per seed |
|---|---|---|---|---|---|---|---|
"""
_TAIL = """
## Not shown by any seed, or shown together

- **A truncation is announced as not settled** (`Flushed.end.is_settled`, storage/README.md): off, 700 lives of
  one log found nothing. It matters only if a process is killed between the cut of the lineage and its flush,
  the kept rows are exactly the recorded ones, the next life appends batches and no row, and power goes before
  any row is written: then the row that was cut is back under batches that were acknowledged one index lower. It
  costs one byte, and two flushes at a start after a truncation.
- **A row is durable before what is behind it** stands in raft (`can_propose`, `_extend`) and in storage
  (`append_batches`). Either alone is enough, so the mutation takes both away at the leader.
- **A report counts in the term in which it was built (L1), and bounds of a leader that is deposed are refused (F1)**:
  off together, 40 seeds and four stories of section 2 found nothing. The model (tests/model) shows what they prevent: a
  leader that is deposed hears what is true now, does not know a member that was added since, and raises the bounds. In
  the product a member reports only to the leader that it follows, so no later report reaches a leader of before. A late
  one of the same incarnation is still true, because what it says is durable and never falls.
- **Nothing expires above the cleaned end** (`PassRules.cleaned_end_offset`): off, 40 seeds found nothing. MTRO and
  MXRO lie at or below it, because each replica's own MCCO and MXFO count.
- **The last batch of a log stays, emptied**: off, 40 seeds found nothing. A filler takes its place, and readers get to
  the end with either.
- **MXFO rises only if a pass leaves no transactional data** (`PassCounts.is_transaction_free`): off, 40 seeds found
  nothing. A pass ends below the last stable offset, and clears all of it there.
"""
_ROW = re.compile(r"^\| ([\w-]+) \|.*\|$", re.MULTILINE)


@dataclass
class Search:
    """From one seed on, until something counts."""

    #: Seeds that were run; the last one found it, if any did.
    seeds: int = 0
    verdict: Verdict | None = None
    #: Seeds that ended because the product noticed.
    by_product: int = 0
    elapsed_s: float = 0.0
    messages: list[str] = field(default_factory=list)


def run_seed(mutation: Mutation, seed: int, *, is_off: bool) -> tuple[Verdict | None, float]:
    """(who noticed something, CPU seconds)."""
    if mutation.of_one_log:
        started_s = time.process_time()
        return one_log_verdict(mutation, seed, is_off=is_off), time.process_time() - started_s
    result = simulate(seed, mutation=mutation, is_off=is_off)
    return None if result.failure is None else verdict_of(result.failure), result.elapsed_s


def one_log_verdict(mutation: Mutation, seed: int, *, is_off: bool) -> Verdict | None:
    """No disk is damaged there: a broken promise counts, and so does a log that recovery refuses."""
    cluster = SimulatedCluster(random.Random(seed))  # of which the switch of a log needs nothing
    try:
        with mutation.switched_off(cluster) if is_off else nullcontext():
            run_one_log(seed, DiskFaults(), stops_in_truncations=True)
    except Exception as failure:
        *_, error = causes(failure)
        verdict = verdict_of(failure)
        if type(error) in ONE_LOG:
            verdict = verdict._replace(witness=Witness.PROPERTY, where=ONE_LOG[type(error)])
        return verdict
    finally:
        cluster.close()
    return None


def search(mutation: Mutation, start: int, bound: int) -> Search:
    """At most `bound` seeds with the rule off."""
    found = Search()
    for seed in range(start, start + bound):
        verdict, elapsed_s = run_seed(mutation, seed, is_off=True)
        found.seeds += 1
        found.elapsed_s += elapsed_s
        if verdict is None:
            continue
        found.messages.append(f"seed {seed}: {verdict}: {verdict.message}")
        if verdict.counts:
            found.verdict = verdict
            break
        found.by_product += 1
    return found


def row_of(mutation: Mutation, searches: Sequence[Search]) -> str:
    missed = sum(one.verdict is None for one in searches)
    counts = [one.seeds for one in searches]
    witnesses = sorted({f"{one.verdict}" for one in searches if one.verdict is not None})
    cells = (
        mutation.name,
        f"{mutation.rule}. {mutation.note}" if mutation.note else mutation.rule,
        how_met(mutation),
        f"{statistics.median(counts):g}" if not missed else f"{missed} of {len(searches)} found nothing",
        str(max(counts)),
        ", ".join(witnesses) or "nobody",
        str(sum(one.by_product for one in searches)),
        f"{sum(one.elapsed_s for one in searches) / sum(counts):.2f} s",
    )
    return "| " + " | ".join(cells) + " |"


def how_met(mutation: Mutation) -> str:
    if mutation.of_one_log:
        return "one log: power cuts and kills at any step, often in truncations"
    if mutation.mix is None:
        return "what each seed chooses"
    conditions = getattr(mutation.conditions, "__name__", "").replace("_", " ")
    kinds = ", ".join(mutation.mix)
    means = [kinds] if kinds else []
    if conditions != "anything goes":
        means.append(f"nemesis: {conditions}")
    if mutation.story is not None:
        means.append(f"story: {getattr(mutation.story, '__name__', '').replace('_', ' ')}")
    return "; ".join(means) or "no fault"


def run_table(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """(line, whether every search found something) of each mutation; the table is written at the end."""
    rows: dict[str, str] = {}
    for name in names or MUTATIONS:
        mutation = MUTATIONS[name]
        searches = [search(mutation, start, mutation.bound) for start in STARTS]
        rows[name] = row_of(mutation, searches)
        yield rows[name], all(one.verdict is not None for one in searches)
    write_table(rows)


def write_table(rows: dict[str, str]) -> None:
    """Keep the rows of other mutations that there still are."""
    known = {}
    if TABLE.exists():
        known = {match[1]: match[0] for match in _ROW.finditer(TABLE.read_text())}
    merged = {name: row for name in MUTATIONS if (row := rows.get(name, known.get(name))) is not None}
    starts = f"{', '.join(map(str, STARTS[:-1]))} and {STARTS[-1]}"
    TABLE.write_text(_HEAD.format(starts=starts) + "\n".join(merged.values()) + "\n" + _TAIL)
