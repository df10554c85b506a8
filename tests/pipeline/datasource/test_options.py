"""What the options mean, and that what makes no sense is refused with a message that names it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.datasource.cluster_view import ClusterView
from pipeline.datasource.errors import InvalidOption
from pipeline.datasource.offsets import Offsets, Range, limited, split
from pipeline.datasource.options import ReadOptions, WriteOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
READ = SERVERS | {"subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (READ | {"startingOffset": "earliest"}, "startingoffset: no such option; is startingOffsets meant"),
        (READ | {"topic": "t"}, "topic: no such option"),
        ({"subscribe": "t"}, "has to say where the cluster is"),
        (READ | {"bootstrap.servers": "localhost:2"}, "contradict each other"),
        (SERVERS, "has to say which topics"),
        (READ | {"assign": '{"t": [0]}'}, "subscribe and assign contradict"),
        (SERVERS | {"assign": '{"t": 0}'}, "assign: JSON such as"),
        (SERVERS | {"subscribePattern": "("}, "subscribePattern: no regular expression"),
        (READ | {"startingOffsets": "soon"}, "startingOffsets: .*JSON such as"),
        (READ | {"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: .*JSON such as"),
        (READ | {"startingTimestamp": "5", "startingOffsets": "latest"}, "contradict each other"),
        (READ | {"startingOffsetsByTimestampStrategy": "latest"}, "only together with startingTimestamp"),
        (READ | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: a whole number of at least 1"),
        (READ | {"failOnDataLoss": "yes"}, "failOnDataLoss: true or false"),
        (READ | {"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        (READ | {"kafka.auto.offset.reset": "latest"}, "is set by the data source itself"),
        (READ | {"purgeConsumedRecords": "false", "repartition.purge.interval.ms": "1"}, "contradict each other"),
    ],
)  # fmt: skip
def test_a_source_refuses(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        ReadOptions.parse(options)


def test_what_only_a_batch_or_only_a_stream_can_do() -> None:
    with pytest.raises(InvalidOption, match="maxOffsetsPerTrigger: only for readStream"):
        ReadOptions.parse(READ | {"maxOffsetsPerTrigger": "5"}).for_batch()
    with pytest.raises(InvalidOption, match="cannot begin at latest"):
        ReadOptions.parse(READ | {"startingOffsets": '{"t": {"0": -1}}'}).for_batch()
    with pytest.raises(InvalidOption, match="cannot end at earliest"):
        ReadOptions.parse(READ | {"endingOffsets": '{"t": {"0": -2}}'}).for_batch()
    with pytest.raises(InvalidOption, match="only for read"):
        ReadOptions.parse(READ | {"endingOffsets": "latest"}).for_stream()


def test_names_are_not_case_sensitive_and_kafka_options_are_passed_on() -> None:
    options = ReadOptions.parse(
        {"BOOTSTRAP.SERVERS": "h:1", "SubscribePattern": "a.*", "kafka.fetch.min.bytes": "9"}
    )
    assert options.pattern == "a.*"
    assert options.client_config == {
        "bootstrap.servers": "h:1", "fetch.min.bytes": "9", "isolation.level": "read_uncommitted",
    }  # fmt: skip


def test_a_name_of_java_s_client_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidOption, match=r'"key.deserializer".*names and values of librdkafka'):
        ClusterView(ReadOptions.parse(READ | {"kafka.key.deserializer": "x"}))


def test_purging_is_off_unless_asked_for_and_has_kafka_s_default_interval() -> None:
    assert ReadOptions.parse(READ).purge_interval_ms is None
    assert ReadOptions.parse(READ | {"purgeConsumedRecords": "true"}).purge_interval_ms == 30_000
    assert ReadOptions.parse(READ | {"repartition.purge.interval.ms": "500"}).purge_interval_ms == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SERVERS | {"subscribe": "t"}, "subscribe: no such option"),
        (SERVERS | {"deliverySemantics": "twice"}, "at-least-once or exactly-once"),
        (SERVERS | {"deliverySemantics": "exactly-once"}, "needs the option topic"),
        (SERVERS | {"kafka.transactional.id": "x"}, "is set by the data source itself"),
    ],
)  # fmt: skip
def test_a_sink_refuses(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        WriteOptions.parse(options)


def test_a_limit_is_shared_out_in_proportion_and_starves_nobody() -> None:
    start = {("t", n): 100 for n in range(4)}
    end = {("t", 0): 1100, ("t", 1): 600, ("t", 2): 101, ("t", 3): 100}
    assert limited(start, end, 150) == {("t", 0): 199, ("t", 1): 149, ("t", 2): 101, ("t", 3): 100}
    assert limited(start, end, 10_000) == end


def test_large_ranges_are_cut_for_min_partitions_without_a_gap() -> None:
    whole = [Range("t", 0, 0, 900), Range("t", 1, 5, 105), Range("t", 2, 7, 7)]
    assert split(whole, None) == whole[:2]
    pieces = split(whole, 5)
    assert [(each.partition, each.start, each.end) for each in pieces] == [
        (0, 0, 225), (0, 225, 450), (0, 450, 675), (0, 675, 900), (1, 5, 105),
    ]  # fmt: skip


def test_offsets_have_the_connector_s_form_and_equal_offsets_equal_text() -> None:
    offsets = Offsets({("b", 10): 1, ("b", 2): 3, ("a", 0): 4}, {"b": "y", "a": "x"})
    assert offsets.to_json() == {"a": {"0": 4}, "b": {"2": 3, "10": 1}, "#topic-ids": {"a": "x", "b": "y"}}
    again = Offsets.from_json(offsets.to_json())
    assert again == offsets
    assert str(again.to_json()) == str(offsets.to_json())
