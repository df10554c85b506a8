"""Three Varve nodes of this checkout, with settings that the suites expect, in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.suite import ROOT

DEFAULT_PORTS = "15092,15192,15292"
START_TIMEOUT_S = 120
#: What librdkafka's and kafka-python's authors give the brokers that they test with, and segments that are looked at
#: often, so that what a stream job has purged leaves the disk while it runs.
SETTINGS = {
    "num.partitions": "4",
    # `varve cluster up` would take 0: quick for people, but the suites start several members at once.
    "group.initial.rebalance.delay.ms": "3000",
    # kafka-python's group test asks for sessions of 3 s.
    "group.min.session.timeout.ms": "1000",
    "default.replication.factor": "3",
    "log.retention.check.interval.ms": "5000",
}


class ClusterError(Exception):
    """The cluster could not be started; the message is what its command said."""


@contextmanager
def started(ports: str, creates_topics: bool) -> Iterator[str]:
    """Yields the bootstrap servers; stops the nodes afterwards. Their data and logs go with the folder."""
    settings = {**SETTINGS, "auto.create.topics.enable": str(creates_topics).lower()}
    with tempfile.TemporaryDirectory(prefix="varve-compat-") as folder:
        chosen = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
        _varve("cluster", "up", "--base-dir", folder, "--ports", ports, *chosen)
        try:
            yield ",".join(f"localhost:{port}" for port in ports.split(","))
        finally:
            _varve("cluster", "down", "--base-dir", folder, "--delete-data")


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
