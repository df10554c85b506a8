"""From a definition and its values to what prometheus-client prints.

A family of a thousand partitions takes milliseconds, so it is made in pieces: several `Metric`s of the same name, one
after the other. `exposition` prints them as one family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from broker.metrics.catalogue import Definition, Kind
from storage.durations import CLASSES, Durations

#: Values of the labels, in the order of the definition; and the value.
Row = tuple[Sequence[str], float]
#: A piece has the rows of so many steps, some of which may have none. It takes a third of a millisecond.
PIECE_STEPS = 50
#: Upper bounds of a histogram of milliseconds: 2^k microseconds, which is 64 us to 33.6 s.
SHORT = range(6, 26)
#: ... of one of minutes: 16 ms to 71 min.
LONG = range(14, 33)


def family(
    definition: Definition, rows: Iterable[Row | None], piece_steps: int = PIECE_STEPS
) -> Iterator[Metric]:
    """The pieces of a counter or a gauge, then those of its second name. A row of None is a step that has none.
    `piece_steps`: fewer where a step is much work."""
    name, meaning = definition.name, definition.meaning
    if not definition.kafka_name:
        yield from _pieces(definition, name, meaning, definition.labels, rows, piece_steps)
        return
    kept: list[Row] = []
    yield from _pieces(definition, name, meaning, definition.labels, _keeping(rows, kept), piece_steps)
    labels = [definition.kafka_labels.get(label, label) for label in definition.labels]
    yield from _pieces(definition, definition.kafka_name, f"As {name}.", labels, kept)


def _keeping(rows: Iterable[Row | None], kept: list[Row]) -> Iterator[Row | None]:
    for row in rows:
        if row is not None:
            kept.append(row)
        yield row


def _pieces(
    definition: Definition,
    name: str,
    meaning: str,
    labels: Sequence[str],
    rows: Iterable[Row | None],
    piece_steps: int = PIECE_STEPS,
) -> Iterator[Metric]:
    samples: list[Sample] = []
    for steps, row in enumerate(rows, 1):
        if row is not None:
            samples.append(Sample(name, dict(zip(labels, row[0], strict=True)), row[1]))
        if steps % piece_steps == 0:
            yield _metric(name, meaning, definition.kind, samples)
            samples = []
    yield _metric(name, meaning, definition.kind, samples)


def _metric(name: str, meaning: str, kind: Kind, samples: list[Sample]) -> Metric:
    # prometheus-client adds the suffix of a counter's name itself.
    metric = Metric(name.removesuffix("_total") if kind is Kind.COUNTER else name, meaning, kind.value)
    metric.samples = samples
    return metric


def single(definition: Definition, value: float) -> Iterator[Metric]:
    """A metric without labels."""
    return family(definition, [((), value)])


def histogram(
    definition: Definition, rows: Iterable[tuple[Sequence[str], Durations]], bounds: range = SHORT
) -> Iterator[Metric]:
    """One piece for each row."""
    name = definition.name
    yield _metric(name, definition.meaning, definition.kind, [])
    for values, durations in rows:
        labels = dict(zip(definition.labels, values, strict=True))
        yield _metric(name, definition.meaning, definition.kind, _buckets(name, labels, durations, bounds))


def _buckets(name: str, labels: dict[str, str], durations: Durations, bounds: range) -> list[Sample]:
    """Each bucket counts all that took less than its bound. (`le` is "no more". Hardly anything takes exactly that.)"""
    assert bounds.stop <= CLASSES
    counts = list(durations.counts)
    below = sum(counts[: bounds.start])
    samples = []
    for each in bounds:
        below += counts[each]
        samples.append(Sample(f"{name}_bucket", {**labels, "le": str(2**each / 1e6)}, below))
    count = sum(counts)
    samples.append(Sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count))
    samples.append(Sample(f"{name}_sum", labels, durations.total_us / 1e6))
    samples.append(Sample(f"{name}_count", labels, count))
    return samples
