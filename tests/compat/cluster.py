"""Three Varve nodes of this checkout, with settings that the suites expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import varve

#: What librdkafka's and kafka-python's authors give the brokers that they test with.
SETTINGS = {
    "num.partitions": "4",
    # By default it is 0: quick for people, but the suites start several members at once.
    "group.initial.rebalance.delay.ms": "3000",
    # kafka-python's group test asks for sessions of 3 s.
    "group.min.session.timeout.ms": "1000",
    "default.replication.factor": "3",
    # librdkafka's 0077 waits for 20 s, and takes a topic for compacted then.
    "varve.compaction.initial.delay.ms": "1000",
    "varve.compaction.interval.ms": "1000",
}
NO_AUTO_CREATE = {"auto.create.topics.enable": "false"}
#: So that what a stream job has purged leaves the disk while it runs. Not for all suites: librdkafka's 0052 writes
#: records of 1970, and reads them some seconds later.
LOOKS_OFTEN = {"log.retention.check.interval.ms": "5000"}


@contextmanager
def started(settings: Mapping[str, str]) -> Iterator[str]:
    """Yields the bootstrap servers. `settings`: besides those that all suites expect. Raises varve.ClusterError."""
    with varve.Cluster(3, {**SETTINGS, **settings}) as cluster:
        yield cluster.bootstrap_servers
