"""For each cause that `varve explain` knows: a cluster in that state, and what it answers."""

from __future__ import annotations

from functools import partial

import pytest

from tests.integration.conftest import ClusterFactory
from tests.integration.explaining import (
    NODE,
    causes,
    create,
    explain,
    fill,
    open_transaction,
    varve,
    wait_for,
)
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import TOPIC, write


@pytest.fixture
def one(make_cluster: ClusterFactory) -> BrokerCluster:
    return make_cluster(1, **NODE)


@pytest.fixture
def three(make_cluster: ClusterFactory) -> BrokerCluster:
    return make_cluster(3, **NODE)


def has_segments(cluster: BrokerCluster, count: int) -> bool | None:
    return True if len(cluster.segments(1, TOPIC)) >= count else None


# -- why it is not compacted


def test_the_policy(one: BrokerCluster) -> None:
    create(one, cleanup_policy="delete")
    found = causes(one)
    assert list(found) == ["policy"]
    assert found["policy"]["setting"] == "cleanup.policy=delete"


def test_the_active_segment(one: BrokerCluster) -> None:
    create(one, segment_ms="7200000")
    fill(one)
    found = causes(one)
    assert list(found) == ["active_segment"]
    assert "segment.ms=7200000" in found["active_segment"]["setting"]


def test_the_lag(one: BrokerCluster) -> None:
    create(one, segment_ms="100", min_compaction_lag_ms="3600000")
    fill(one)
    assert wait_for(one, "min_lag")["setting"] == "min.compaction.lag.ms=3600000"


def test_the_dirty_ratio(one: BrokerCluster) -> None:
    create(one, segment_ms="100", min_cleanable_dirty_ratio="1.0")
    fill(one)
    found = wait_for(one, "dirty_ratio")
    assert found["setting"] == "min.cleanable.dirty.ratio=1.0"
    assert found["text"].startswith("1.00 of what may be compacted is dirty")


def test_an_open_transaction_is_named_with_the_command_that_ends_it(one: BrokerCluster) -> None:
    create(one, segment_ms="100", min_cleanable_dirty_ratio="0")
    fill(one, 20)
    with open_transaction(one, (b"k1", b"open")):
        found = wait_for(one, "open_transaction")
        assert found["command"] == f"varve txn abort --topic {TOPIC} --partition 0 --start-offset 20 --force"
        varve(one, *found["command"].split()[1:])
    wait_for(one, "visible", "--partition", "0", "--offset", "19")
    assert "open_transaction" not in causes(one)


def test_a_cleaner_that_is_off(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1, **NODE, log__cleaner__enable="false")
    create(cluster)
    assert causes(cluster)["cleaner_off"]["setting"] == "log.cleaner.enable=false"


def test_a_segment_with_more_keys_than_memory_for_them(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1, **NODE, log__cleaner__dedupe__buffer__size="1024")
    create(cluster, segment_ms="100", min_cleanable_dirty_ratio="0")
    fill(cluster, 500, keys=500)
    found = wait_for(cluster, "uncleanable")
    assert "log.cleaner.dedupe.buffer.size" in found["text"]
    assert "tried again at" in found["text"]


def test_a_full_key_map(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(
        1, **NODE | {"varve__compaction__interval__ms": "3600000"}, log__cleaner__dedupe__buffer__size="1024"
    )
    create(cluster, segment_bytes="1048576", min_cleanable_dirty_ratio="0", segment_ms="100")
    for part in range(6):
        write(cluster, *((b"%d-%d" % (part, number), b"v") for number in range(20)))
        eventually(partial(has_segments, cluster, part + 2), "a segment is sealed")
    varve(cluster, "topic", "compact", TOPIC, "--wait")
    assert causes(cluster)["map_full"]["setting"] == "log.cleaner.dedupe.buffer.size=1024"


def test_a_pass_that_is_due_and_one_that_is_under_way(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(
        1,
        **NODE | {"varve__compaction__interval__ms": "3600000"},
        log__cleaner__io__max__bytes__per__second="200",
    )
    create(cluster, segment_ms="100", min_cleanable_dirty_ratio="0")
    fill(cluster, 500)
    found = wait_for(cluster, "due")
    assert found["setting"] == "varve.compaction.interval.ms=3600000"
    varve(cluster, *found["command"].removesuffix(" --wait").split()[1:])
    wait_for(cluster, "running")


def test_what_no_compaction_can_shrink(one: BrokerCluster) -> None:
    create(one)
    write(one, *((b"%d" % number, bytes(100_000)) for number in range(10)))
    varve(one, "topic", "compact", TOPIC, "--wait")
    found = causes(one)
    assert list(found) == ["unique_keys", "large_values"]
    assert "10 of 10 records" in found["unique_keys"]["text"]
    assert "97 KiB" in found["large_values"]["text"]


def test_a_replica_that_was_restarted_and_has_no_majority(three: BrokerCluster) -> None:
    create(three, (1, 2), segment_ms="100", min_cleanable_dirty_ratio="0")
    fill(three)
    varve(three, "topic", "compact", TOPIC, "--wait")
    three.kill(*three.brokers)
    three.start(1, 3)
    found = wait_for(three, "uncommitted")
    assert "does not know yet" in found["text"]


def test_records_that_no_majority_has(three: BrokerCluster) -> None:
    create(three, (1, 2), segment_ms="100", min_cleanable_dirty_ratio="0")
    fill(three, 20)
    three.kill(2)
    write(three, (b"k", b"lonely"), acks="1")
    assert "the high watermark is 20" in wait_for(three, "high_watermark")["text"]
    assert "not_committed" in causes(three, "-p", "0", "-o", "20")


def test_a_broker_that_does_not_answer(three: BrokerCluster) -> None:
    create(three, (3,))
    three.kill(3)
    assert "unavailable" in causes(three)


# -- what a pass leaves


def test_a_deletion_stays_for_slow_consumers(one: BrokerCluster) -> None:
    create(one, delete_retention_ms="3600000")
    write(one, (b"k", b"v"), (b"k", None), (b"other", b"v"))
    varve(one, "topic", "compact", TOPIC, "--wait")
    found = wait_for(one, "delete_horizon")
    assert found["setting"] == "delete.retention.ms=3600000"
    assert found["text"].startswith("1 tombstone ")
    (record,) = explain(one, "--key", "k")
    assert (record["offset"], record["is_tombstone"]) == (1, True)
    assert "slow consumers until" in record["fate"]


def test_a_deletion_stays_for_a_replica_that_is_away(three: BrokerCluster) -> None:
    create(three, (1, 2, 3), delete_retention_ms="100")
    write(three, (b"k", b"v"), (b"k", None), (b"other", b"v"))
    three.kill(3)
    varve(three, "topic", "compact", TOPIC, "--wait", exit_code=1)
    found = wait_for(three, "pinned")
    assert "Broker 3" in found["text"]
    assert "offline" in found["text"]
    assert found["command"].startswith("start broker 3")
    text = varve(three, "explain", TOPIC)
    assert f"  1. {found['text']}\n" in text
    assert f"{found['setting']}\n     to change it: {found['command']}\n" in text
    (record,) = explain(three, "--key", "k")
    assert "Behind is broker 3 (offline)" in record["fate"]


# -- one key, one offset


def test_the_records_of_a_key_and_their_fates(one: BrokerCluster) -> None:
    create(one)
    write(one, (b"k", b"1"), (b"k", b"2"), (b"other", b"x"))
    with open_transaction(one, (b"k", b"aborted")) as producer:
        producer.abort_transaction(10)
    with open_transaction(one, (b"k", b"open")):
        found = {record["offset"]: record for record in explain(one, "--key", "k")}
    assert [record["transaction"] for record in found.values()] == [
        "committed",
        "committed",
        "aborted",
        "open",
    ]
    assert found[0]["fate"].startswith("offset 1 is newer; it goes once offset 1 may be compacted")
    assert found[1]["fate"] == "the newest one: it stays"
    assert "aborted" in found[3]["fate"]
    assert "has not ended" in found[5]["fate"]
    assert explain(one, "--key", "none") == []


def test_what_is_at_an_offset(one: BrokerCluster) -> None:
    create(one, cleanup_policy="compact,delete")
    write(one, (b"k", b"1"), (b"k", b"2"), (b"other", b"x"))
    with open_transaction(one, (b"k", b"aborted")) as producer:
        producer.abort_transaction(10)
    with open_transaction(one, (b"k", b"open")):
        at = {offset: list(causes(one, "-p", "0", "-o", str(offset))) for offset in (0, 3, 4, 5, 6)}
    assert at == {0: ["visible"], 3: ["aborted"], 4: ["control"], 5: ["open_transaction"], 6: ["not_written"]}
    varve(one, "txn", "abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "5", "--force")
    varve(one, "topic", "compact", TOPIC, "--wait")
    assert list(causes(one, "-p", "0", "-o", "0")) == ["compacted"]
    varve(one, "topic", "purge", TOPIC, "--partitions", "0", "--before-offset", "2")
    assert list(causes(one, "-p", "0", "-o", "0")) == ["deleted"]
