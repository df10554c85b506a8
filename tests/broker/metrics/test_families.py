"""From values to the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from broker.metrics.catalogue import CATALOGUE, Definition, Kind
from broker.metrics.exposition import in_pieces
from broker.metrics.families import LONG, PIECE_STEPS, family, histogram, single
from storage.durations import Durations
from tests.broker.metrics.scrape import Scrape

SIZE = Definition("varve_size_bytes", Kind.GAUGE, "Size.", ("topic", "partition"))
SENT = Definition("varve_sent_total", Kind.COUNTER, "Sent.", ("api",), "kafka_sent_total", {"api": "request"})
TIME = Definition("varve_time_seconds", Kind.HISTOGRAM, "Time.", ("api",))


def text(metrics: Iterable[Metric]) -> str:
    return b"".join(in_pieces(metrics)).decode()


def test_a_value_without_labels() -> None:
    assert text(single(Definition("varve_free", Kind.GAUGE, "Free."), 7)) == (
        "# HELP varve_free Free.\n# TYPE varve_free gauge\nvarve_free 7.0\n"
    )


def test_a_second_name_has_the_same_values_and_its_own_labels() -> None:
    assert text(family(SENT, [(("Fetch",), 3), None, (("Produce",), 4)])) == (
        "# HELP varve_sent_total Sent.\n# TYPE varve_sent_total counter\n"
        'varve_sent_total{api="Fetch"} 3.0\nvarve_sent_total{api="Produce"} 4.0\n'
        "# HELP kafka_sent_total As varve_sent_total.\n# TYPE kafka_sent_total counter\n"
        'kafka_sent_total{request="Fetch"} 3.0\nkafka_sent_total{request="Produce"} 4.0\n'
    )


def test_a_large_family_is_made_in_pieces_and_is_one_family() -> None:
    rows = [(("t", str(number)), number) for number in range(1000)]
    pieces = list(family(SIZE, rows))
    assert max(len(piece.samples) for piece in pieces) <= PIECE_STEPS
    scrape = Scrape(text(pieces))
    assert scrape.all("varve_size_bytes") == {
        frozenset({("topic", "t"), ("partition", str(number))}): number for number in range(1000)
    }
    assert scrape.text.count("# HELP") == 1


def test_steps_without_a_row_count_for_a_piece() -> None:
    """Or a walk that finds nothing would keep the loop for as long as it takes."""
    taken = 0

    def rows() -> Iterable[None]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield None

    pieces = family(SIZE, rows())
    next(pieces)
    assert taken == PIECE_STEPS


def test_labels_may_hold_anything() -> None:
    name = 'a"b\\c\nd \N{SNOWMAN}'
    scrape = Scrape(text(family(SIZE, [((name, "0"), 1)])))
    assert scrape("varve_size_bytes", topic=name) == 1


def test_buckets_count_what_took_less() -> None:
    durations = Durations()
    for seconds in (0.00001, 0.003, 0.004, 2.0, 5000.0):
        durations.add(seconds)
    scrape = Scrape(text(histogram(TIME, [(("Fetch",), durations)])))
    assert scrape("varve_time_seconds_bucket", le="6.4e-05") == 1
    assert scrape("varve_time_seconds_bucket", le="0.004096") == 3
    assert scrape("varve_time_seconds_bucket", le="0.002048") == 1
    assert scrape("varve_time_seconds_bucket", le="33.554432") == 4
    assert scrape("varve_time_seconds_bucket", le="+Inf") == 5
    assert scrape("varve_time_seconds_count", api="Fetch") == 5
    assert scrape("varve_time_seconds_sum") == 5002.00701


def test_buckets_never_fall() -> None:
    durations = Durations()
    for power in range(34):
        durations.add(2**power / 1e6)
    scrape = Scrape(text(histogram(TIME, [(("Fetch",), durations)], LONG)))
    by_bound = {
        float(dict(labels)["le"]): count for labels, count in scrape.all("varve_time_seconds_bucket").items()
    }
    counts = [by_bound[bound] for bound in sorted(by_bound)]
    assert counts == sorted(counts)
    assert counts[-1] == 34


def test_names_follow_the_rules_of_prometheus() -> None:
    for name, definition in CATALOGUE.items():
        assert name == definition.name
        assert name.startswith("varve_")
        assert definition.meaning.endswith("."), name
        assert definition.kind is not Kind.HISTOGRAM or name.endswith("_seconds"), name
        assert set(definition.kafka_labels) <= set(definition.labels), name
    second = [each.kafka_name for each in CATALOGUE.values() if each.kafka_name]
    assert len(second) == len(set(second))
