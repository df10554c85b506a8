"""Workloads in YAML: what a file may say, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.errors import PipelineError
from pipeline.workloads.definition import find_workload, names, parse_workload
from pipeline.workloads.spec import KeyDistribution, ValueKind

KNOWN = {
    "smoke",
    "omb-100b",
    "omb-1kb",
    "many-partitions",
    "many-producers",
    "compact-uniform",
    "compact-zipf",
    "compact-tail",
    "cdc-orders",
    "nexmark",
    "txn",
    "purge",
    "backlog",
}


def test_every_workload_of_the_library_can_be_run_at_any_scale() -> None:
    assert set(names()) == KNOWN
    for name in names():
        workload = find_workload(name)
        assert workload.exercises
        for scale in (0.1, 1, 10):
            spec = workload.spec("t", 1, 0, scale=scale)
            assert spec.records == pytest.approx(workload.spec_fields["records"] * scale, abs=1)


def test_openmessagings_fields_mean_what_they_mean_there() -> None:
    workload = parse_workload(
        {
            "name": "ten topics",
            "topics": 10,
            "partitionsPerTopic": 3,
            "messageSize": 100,
            "useRandomizedPayloads": True,
            "randomBytesRatio": 0.5,
            "keyDistributor": "KEY_ROUND_ROBIN",
            "producersPerTopic": 2,
            "producerRate": 1000,
            "testDurationMinutes": 2,
            "warmupDurationMinutes": 0.5,
        },
        "file",
    )
    spec = workload.spec("t", 7, 5)
    assert (spec.topics, workload.partitions, spec.record_size_bytes, spec.producers) == (10, 3, 100, 20)
    assert (spec.records, spec.rate_per_s, workload.warm_up_s) == (120_000, 1000, 30)
    assert (spec.key_distribution, spec.random_share) == (KeyDistribution.ROUND_ROBIN, 0.5)
    assert (spec.topic, spec.seed, spec.start_timestamp_ms) == ("t", 7, 5)


def test_settings_of_topics_are_written_as_kafka_writes_them() -> None:
    workload = parse_workload(
        {"records": 10, "values": "shop", "topicConfig": {"segment.ms": 5000, "preallocate": True}}, "file"
    )
    assert workload.topic_config == {"segment.ms": "5000", "preallocate": "true"}
    assert workload.spec("t", 1, 0).values is ValueKind.SHOP
    assert workload.name == "file"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "not a mapping"),
        ({"records": 10, "mesageSize": 100}, "there is no field 'mesageSize' (did you mean 'messageSize'?)"),
        ({"records": "many"}, "records must be int, not 'many'"),
        ({"records": True}, "records must be int, not True"),
        ({}, "say either records or testDurationMinutes"),
        ({"records": 1, "testDurationMinutes": 1}, "say either records or testDurationMinutes"),
        ({"testDurationMinutes": 1}, "testDurationMinutes needs a producerRate"),
        ({"records": 10, "keyDistributor": "GAUSS"}, "keyDistributor is one of NO_KEY"),
        ({"records": 10, "compression": "rar"}, "compression is one of none"),
        ({"records": 10, "partitionsPerTopic": 0}, "partitionsPerTopic must be at least 1"),
        ({"records": 10, "tombstones": 2}, "tombstone_share must be a share from 0 to 1"),
        ({"records": 10, "keyDistributor": "NO_KEY", "tombstones": 0.1}, "a tombstone needs a key"),
        ({"records": 10, "consumerBacklogSizeGB": 1, "purge": True}, "and not with purge"),
        ({"records": 10, "producersPerTopic": 3, "producersPerTask": 2}, "must be a multiple"),
    ],
)
def test_what_is_wrong_is_named(content: object, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_workload(content, "file")
    assert said in str(raised.value)


def test_a_name_that_is_not_known_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="python -m pipeline lab retry-storm"):
        find_workload("retry-storm")
    with pytest.raises(PipelineError, match="did you mean 'smoke'"):
        find_workload("smok")
    with pytest.raises(PipelineError, match="cannot be read"):
        find_workload(str(tmp_path / "none.yaml"))
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(PipelineError, match="is not YAML"):
        find_workload(str(tmp_path / "broken.yaml"))
    (tmp_path / "own.yaml").write_text("records: 7\n")
    assert find_workload(str(tmp_path / "own.yaml")).spec("t", 1, 0).records == 7
