"""Three Varve nodes of this checkout, with settings that the suites expect, in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.compat.suite import ROOT

DEFAULT_PORTS = "15092,15192,15292"
START_TIMEOUT_S = 120
#: What librdkafka's and kafka-python's authors give the brokers that they test with.
SETTINGS = {
    "num.partitions": "4",
    # `varve cluster up` would take 0: quick for people, but the suites start several members at once.
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


class ClusterError(Exception):
    """The cluster could not be started; the message is what its command said."""


@contextmanager
def started(ports: str, settings: Mapping[str, str]) -> Iterator[str]:
    """Yields the bootstrap servers; stops the nodes afterwards. Their data and logs go with the folder. `settings`:
    besides those that all suites expect."""
    with tempfile.TemporaryDirectory(prefix="varve-compat-") as folder:
        chosen = [
            word for key, value in {**SETTINGS, **settings}.items() for word in ("--config", f"{key}={value}")
        ]
        _varve("cluster", "up", "--base-dir", folder, "--ports", ports, *chosen)
        try:
            yield ",".join(f"localhost:{port}" for port in ports.split(","))
        finally:
            _varve("cluster", "down", "--base-dir", folder, "--delete-data", "--yes")


def _varve(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ClusterError(done.stdout + done.stderr)
