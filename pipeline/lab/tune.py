"""The playbook of producer guides, carried out: one setting after the other, and each is kept that helps.

1. the baseline: `pipeline.producer`'s settings; 2. linger.ms; 3. batch.size; 4. compression.type; 5. requests in
flight. What helps is what gives more throughput, over the noise that the baseline shows between its own runs, and
does so again beside the setting whose place it takes: the best of several is best by luck, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pipeline.lab.observed import Observed
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

#: Settings in the order of the playbook, and what is tried of each.
STEPS: Mapping[str, tuple[Any, ...]] = {
    "linger.ms": (0, 5, 20, 100),
    "batch.size": (16_384, 131_072, 1_000_000),
    "compression.type": ("none", "lz4", "zstd"),
    "max.in.flight.requests.per.connection": (1, 5),
}
#: Where the playbook begins.
START: Mapping[str, Any] = {
    "linger.ms": 5,
    "batch.size": 16_384,
    "compression.type": "none",
    "max.in.flight.requests.per.connection": 5,
}
#: At least so much better is kept, however quiet the machine.
_LEAST_GAIN = 0.03


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of settings, and its runs."""

    step: str
    settings: Mapping[str, Any]
    runs: list[Observed]

    @property
    def megabytes_per_s(self) -> float:
        return median(run.megabytes_per_s for run in self.runs)

    def middle(self) -> Observed:
        """The run whose throughput is the median."""
        return sorted(self.runs, key=lambda run: run.megabytes_per_s)[len(self.runs) // 2]


@dataclass(slots=True)
class Playbook:
    """All that was tried, and what was kept."""

    baseline: Trial
    noise: float
    """Half the spread of the baseline's runs, as a share of their median."""
    kept: Trial
    trials: list[Trial] = field(default_factory=list)
    steps: list[Trial] = field(default_factory=list)
    """Those that were kept, one built upon the other; `kept` is the last of them."""


def play(measure: Callable[[Mapping[str, Any]], list[Observed]], say: Callable[[str], None]) -> Playbook:
    """Carry it out. `measure` runs some settings a few times."""
    baseline = Trial("baseline", START, measure(START))
    rates = [run.megabytes_per_s for run in baseline.runs]
    noise = (max(rates) - min(rates)) / 2 / median(rates)
    book = Playbook(baseline, noise, baseline, [baseline], [baseline])
    gain = 1 + max(noise, _LEAST_GAIN)
    say(f"baseline: {baseline.megabytes_per_s:.1f} MB/s, give or take {100 * noise:.0f} %")
    for name, values in STEPS.items():
        best = book.kept
        for value in values:
            if value == book.kept.settings[name]:
                continue
            settings = {**book.kept.settings, name: value}
            trial = Trial(f"{name}={value}", settings, measure(settings))
            book.trials.append(trial)
            say(f"{trial.step}: {trial.megabytes_per_s:.1f} MB/s")
            if trial.megabytes_per_s > best.megabytes_per_s:
                best = trial
        if best.megabytes_per_s > book.kept.megabytes_per_s * gain and _is_better_again(
            measure, best, book.kept, gain
        ):
            book.kept = best
            book.steps.append(best)
            say(f"kept: {best.step}")
    return book


def _is_better_again(
    measure: Callable[[Mapping[str, Any]], list[Observed]], one: Trial, other: Trial, gain: float
) -> bool:
    before, after = (Trial(each.step, each.settings, measure(each.settings)) for each in (other, one))
    return after.megabytes_per_s > before.megabytes_per_s * gain


def bottleneck(observed: Observed) -> str:
    """What the producer waits for, from the time that records spend in its queue, on the way, and on its processor."""
    busy = observed.client_cpu_s / observed.seconds
    if busy > 0.85:
        return (
            f"the client's processor: {100 * busy:.0f} % of one core is busy making, compressing and reporting records;"
            " use more producers, or a cheaper codec"
        )
    if observed.queue_ms > 2 * observed.round_trip_ms:
        return (
            f"the cluster: records wait {observed.queue_ms:,.0f} ms in the producer's queue while a request takes"
            f" {observed.round_trip_ms:,.1f} ms; more partitions or brokers, or fewer bytes, would help"
        )
    return (
        f"the way to the cluster and back: a request takes {observed.round_trip_ms:,.1f} ms, and records wait"
        f" {observed.queue_ms:,.1f} ms for it; larger batches carry more on each trip"
    )


def findings(book: Playbook) -> Sweep:
    table = TableOf(
        "The playbook, step by step",
        [
            "tried",
            ("acknowledged", "MB/s"),
            "records per batch",
            ("in the queue", "ms"),
            ("round trip", "ms"),
            ("p99", "ms"),
            "kept",
        ],
    )
    for trial in book.trials:
        run = trial.middle()
        table.add(
            trial.step,
            trial.megabytes_per_s,
            run.records_per_batch,
            run.queue_ms,
            run.round_trip_ms,
            run.latency_ms(0.99),
            any(trial is step for step in book.steps),
        )
    plot = plot_of(
        "Throughput by step",
        Axis("tried", "", "category"),
        Axis("acknowledged", "MB/s", "linear"),
        Series("median", [(trial.step, trial.megabytes_per_s) for trial in book.trials], False),
    )
    return Sweep("Tuning a producer", said(book), [table.table()], [plot])


def changed(book: Playbook) -> dict[str, Any]:
    """The settings that the playbook has changed."""
    return {name: value for name, value in book.kept.settings.items() if value != START[name]}


def said(book: Playbook) -> str:
    settings = changed(book)
    gain = book.kept.megabytes_per_s / book.baseline.megabytes_per_s
    if not settings:
        text = (
            f"Nothing that was tried gave more than the {book.baseline.megabytes_per_s:.1f} MB/s of the baseline,"
            f" over its noise of {100 * book.noise:.0f} %."
        )
    else:
        listed = ", ".join(f"{name}={value}" for name, value in settings.items())
        text = (
            f"{listed}: {book.kept.megabytes_per_s:.1f} MB/s, {gain:.1f} times the baseline's"
            f" {book.baseline.megabytes_per_s:.1f} (noise {100 * book.noise:.0f} %)."
        )
    return f"{text} What is waited for now is {bottleneck(book.kept.middle())}."
