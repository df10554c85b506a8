"""A record of one replica is changed on its disk, so that no checksum shows it: the comparison of replicas finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import HEADER_BYTES, iter_batches, renew_crc
from tests.broker.metrics.scrape import Scrape
from tests.integration.conftest import ClusterFactory
from tests.integration.explaining import create, varve
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, TOPIC, write


def change_value(path: Path, old: bytes, new: bytes) -> None:
    """Of the one record that has it, in the file of a segment."""
    data = bytearray(path.read_bytes())
    for position, header in list(iter_batches(memoryview(data))):
        batch = data[position : position + header.size_bytes]
        if old in batch[HEADER_BYTES:]:
            at = batch.index(old, HEADER_BYTES)
            batch[at : at + len(old)] = new
            renew_crc(batch)
            data[position : position + header.size_bytes] = batch
            path.write_bytes(data)
            return
    raise AssertionError(f"{old!r} is not in {path}")


def verify(cluster: BrokerCluster, exit_code: int) -> dict[str, Any]:
    answer = json.loads(varve(cluster, "verify", "replicas", TOPIC, "--format", "json", exit_code=exit_code))
    (found,) = answer["partitions"]
    assert found["error"] is None
    return dict(found)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_record_that_was_changed_by_hand_is_found(make_cluster: ClusterFactory, policy: str) -> None:
    cluster = make_cluster(3, varve__verify__interval__ms="1000")
    create(cluster, (1, 2, 3), cleanup_policy=policy)
    for number in range(30):  # a batch each
        write(cluster, (b"k%d" % number, b"value-%02d" % number))
    healthy = verify(cluster, 0)
    assert [replica["broker"] for replica in healthy["replicas"]] == [healthy["leader"], *_others(healthy)]
    assert (healthy["start_offset"], healthy["end_offset"], healthy["records"]) == (0, 30, 30)
    assert {replica["like"] for replica in healthy["replicas"]} == {1}

    changed = _others(healthy)[0]
    cluster.terminate(changed)
    away = verify(cluster, 10)
    assert _by_broker(away)[changed]["not_compared"] == "offline"
    (segment,) = cluster.segments(changed, TOPIC)
    change_value(segment, b"value-17", b"value_17")
    cluster.start(changed)

    leader = cluster.leader_of(TOPIC)
    wrong = verify(cluster, 1)
    assert (wrong["leader"], changed) != (changed, leader)
    found = _by_broker(wrong)[changed]
    assert (found["first_offset"], found["end_offset"]) == (17, 18)
    assert (found["records_of_leader"], found["records"]) == (1, 1)
    text = varve(cluster, "verify", "replicas", TOPIC, exit_code=1)
    assert f"broker {changed} differs from leader {leader} at offset 17" in text

    def told_in_background() -> bool | None:
        lines = [line for line in cluster[leader].log_text().splitlines() if "replicas differ" in line]
        # Two were for the command.
        return True if sum(f"broker={changed}" in x and "first_offset=17" in x for x in lines) > 2 else None

    eventually(told_in_background, "the background finds it, too", LIMIT_S)
    assert Scrape(cluster[leader].metrics())("varve_replica_mismatches_total", topic=TOPIC) > 2


def _others(found: dict[str, Any]) -> list[int]:
    return [replica["broker"] for replica in found["replicas"] if replica["broker"] != found["leader"]]


def _by_broker(found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {replica["broker"]: replica for replica in found["replicas"]}
