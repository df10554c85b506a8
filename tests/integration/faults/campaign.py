"""One campaign: a cluster, its clients, the nemesis, and the verdict on what the clients wrote down."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history.checker import check
from tests.history.operations import HistoryError, read_operations
from tests.history.report import report
from tests.integration.faults import power
from tests.integration.faults.client import MAX_MESSAGE_BYTES, read_all
from tests.integration.faults.nemesis import Nemesis
from tests.integration.faults.network import Network, is_inside
from tests.integration.faults.nodes import ROOT, Node

TOPIC = "nemesis"
PARTITIONS = 4
_NODES = (1, 2, 3)
_START_TIMEOUT_S = 60.0
_PRODUCERS = ("idempotent", "idempotent", "plain", "once")
_CONSUMERS = 3


@dataclass
class Outcome:
    """What a campaign showed."""

    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """Whatever else than the history speaks against the cluster: it did not recover, a node ended by itself."""
    checked: dict[str, Any] | None = None
    """The checker's report; None where there was nothing to judge."""
    longest_unavailability_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems and self.checked is not None and bool(self.checked["valid"])


def run_campaign(
    folder: Path,
    seed: int,
    duration_s: float,
    faults: list[str],
    say: Callable[[str], None],
    against: str | None = None,
    *,
    recovery_s: float = 90,
    has_lying_disks: bool = False,
) -> Outcome:
    """`folder`: new; gets histories, nodes and logs. `against`: a running cluster, which is not broken.

    `recovery_s`: how long the healed cluster has until every replica is in sync, then clients until they are answered,
    then readers until they have read every record. `has_lying_disks`: flushes have no effect, to see that a loss of
    power is then noticed.
    """
    folder.mkdir(parents=True)
    outcome = Outcome()
    with ExitStack() as stack:
        nodes: list[Node] = []
        network = None
        if against is None:
            network = Network(_NODES) if is_inside() else None
            undo = (
                partial(power.UndoLog, power.build(folder), is_lying=has_lying_disks)
                if "power" in faults
                else None
            )
            nodes = stack.enter_context(_running(folder, network, undo, outcome))
        bootstrap = against or ",".join(node.address for node in nodes)
        nemesis = Nemesis(nodes, network, seed, faults, say)
        topic = f"{TOPIC}-{seed}-{int(time.time())}"
        _create_topic(bootstrap, topic)
        say(f"three brokers answer at {bootstrap}" if nodes else f"topic {topic} made at {bootstrap}")
        with _clients(folder, bootstrap, topic, seed, recovery_s):
            nemesis.run(duration_s)
            nemesis.heal()
            say("healed")
            _await_recovery(bootstrap, topic, recovery_s, outcome)
            time.sleep(2)  # with everybody in good health, once
        say("clients ended")
        # What was acknowledged last must be as durable as all before.
        if nemesis.end_all():
            _await_recovery(bootstrap, topic, recovery_s, outcome)
        say("reading everything")
        try:
            read_all(bootstrap, topic, PARTITIONS, folder / "read.jsonl", recovery_s)
        except (TimeoutError, KafkaException) as error:
            outcome.problems.append(f"the last read: {error}")
        outcome.faults = nemesis.done
        for node in nodes:
            if not node.is_running and not node.exits:
                outcome.problems.append(f"node {node.node_id} does not run")
            outcome.problems += node.exits
        _judge(folder, outcome)
    return outcome


@contextmanager
def _running(
    folder: Path,
    network: Network | None,
    undo: Callable[[Path, Path], power.UndoLog] | None,
    outcome: Outcome,
) -> Iterator[list[Node]]:
    nodes: list[Node] = []
    try:
        nodes += [Node(node_id, folder / f"node-{node_id}", network, undo) for node_id in _NODES]
        for node in nodes:
            node.start(nodes)
        yield nodes
    except BaseException:
        outcome.problems.append("the campaign did not come to its end")
        raise
    finally:
        for node in nodes:
            node.close(keep=not outcome.passed)


@contextmanager
def _clients(folder: Path, bootstrap: str, topic: str, seed: int, end_timeout_s: float) -> Iterator[None]:
    """Producers and consumers in processes of their own; producers end first."""
    producers: list[subprocess.Popen[bytes]] = []
    consumers: list[subprocess.Popen[bytes]] = []

    def start(what: str, name: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.faults.client", what, name, bootstrap, topic]
        command += [str(PARTITIONS), f"{seed}-{name}", str((folder / f"{name}.jsonl").absolute()), *more]
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    try:
        for number, kind in enumerate(_PRODUCERS, 1):
            producers.append(start("produce", f"producer{number}", kind, str(end_timeout_s)))
        consumers += [start("consume", f"consumer{number}") for number in range(1, _CONSUMERS + 1)]
        yield
        for group in (producers, consumers):
            for process in group:
                process.send_signal(signal.SIGTERM)
            for process in group:
                if process.wait(timeout=end_timeout_s + 30):
                    raise RuntimeError(f"a client failed: see the logs in {folder}")
    finally:
        for process in producers + consumers:
            if process.poll() is None:
                process.kill()
                process.wait()


def _create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    settings = {"min.insync.replicas": "2", "max.message.bytes": str(MAX_MESSAGE_BYTES)}
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        request = NewTopic(topic, PARTITIONS, 3, config=settings)
        try:
            admin.create_topics([request], request_timeout=10)[topic].result()
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _await_recovery(bootstrap: str, topic: str, recovery_s: float, outcome: Outcome) -> None:
    """Until every partition has its leader and all replicas in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    begun = time.monotonic()
    missing = "no answer"
    while time.monotonic() - begun < recovery_s:
        try:
            answers = admin.describe_topics(TopicCollection([topic]), request_timeout=5)
            partitions = answers[topic].result().partitions
        except KafkaException as error:
            missing = str(error)
        else:
            lagging = [x.id for x in partitions if x.leader is None or len(x.isr) < len(x.replicas)]
            if len(partitions) == PARTITIONS and not lagging:
                return
            missing = f"partitions {lagging} have no leader, or not all replicas in sync"
        time.sleep(0.2)
    outcome.problems.append(f"not recovered {recovery_s:.0f} s after everything was healed: {missing}")


def _judge(folder: Path, outcome: Outcome) -> None:
    files = tuple(sorted(folder.glob("*.jsonl")))
    try:
        outcome.checked = report(check(read_operations(files)), files)
    except HistoryError as error:
        outcome.problems.append(str(error))
        return
    (folder / "report.json").write_text(json.dumps(outcome.checked, indent=2), encoding="utf-8")
    outcome.longest_unavailability_s = longest_unavailability_s(files)


def longest_unavailability_s(files: tuple[Path, ...]) -> float:
    """The longest that one partition went without an acknowledgement while clients asked for some, in seconds."""
    times: dict[int, list[int]] = {}
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                operation = json.loads(line)
                if operation["op"] == "send" and operation["outcome"] == "ok":
                    times.setdefault(operation["partition"], []).append(operation["end_ns"])
    gaps = [after - before for ends in times.values() for before, after in pairwise(sorted(ends))]
    return max(gaps, default=0) / 1e9


def random_seed() -> int:
    return random.SystemRandom().randrange(1_000_000)
