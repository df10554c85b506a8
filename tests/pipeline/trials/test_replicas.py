"""What the leaders say of the other replicas is a check like those that Spark makes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from confluent_kafka import Producer

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.trials.local_cluster import local_cluster
from pipeline.trials.trial import replicas_are_alike


def test_a_replica_that_is_not_there_to_be_compared_fails_the_check(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "cluster", print) as cluster:
        Cluster(cluster.bootstrap_server).ensure_topic("t", 2, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_server})
        for partition in range(2):
            producer.produce("t", b"value", partition=partition)
        assert producer.flush(30) == 0
        alike = replicas_are_alike(cluster, "t")
        assert (alike.actual, alike.status, alike.sample) == (0, "PASS", [])
        cluster.kill(3)
        unlike = replicas_are_alike(cluster, "t")
        assert (unlike.expected, unlike.actual, unlike.status) == (0, 2, "FAIL")
        assert {each["partition"] for each in unlike.sample} == {0, 1}
        with pytest.raises(PipelineError, match="varve verify replicas nothing"):
            cluster.compare_replicas("nothing")
