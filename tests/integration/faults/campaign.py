"""One campaign: a cluster, its clients, the nemesis, and the verdict on what the clients wrote down."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from tests.integration.faults.client import MAX_MESSAGE_BYTES, History
from tests.integration.faults.last_read import read_all, read_committed_offsets
from tests.integration.faults.nemesis import Nemesis
from tests.integration.faults.network import Network, is_inside
from tests.integration.faults.nodes import ROOT, Node
from tests.integration.faults.transactional import SUBSCRIBE

TOPIC = "nemesis"
PARTITIONS = 4
_NODES = (1, 2, 3)
_START_TIMEOUT_S = 60.0
_PRODUCERS = ("idempotent", "idempotent", "plain", "once")
_CONSUMERS = 3
_WRITERS = 2
#: Of the two chains: each with partitions of its own, or as members of a group that shares them out.
_CHAINS = (("0,2", "1,3"), (SUBSCRIBE, SUBSCRIBE))


@dataclass(frozen=True)
class _Scene:
    """Where the clients of one campaign work."""

    folder: Path
    bootstrap: str
    seed: int
    topic: str
    """Of clients without transactions."""
    transactional_topic: str
    group: str
    """Of the chains."""
    recovery_s: float

    @property
    def topics(self) -> tuple[str, str]:
        return self.topic, self.transactional_topic


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
    broken_rule: str | None = None,
) -> Outcome:
    """`folder`: new; gets histories, nodes and logs. `against`: a running cluster, which is not broken.

    `recovery_s`: how long the healed cluster has until every replica is in sync, then clients until they are answered,
    then readers until they have read every record. `has_lying_disks`: flushes have no effect, to see that a loss of
    power is then noticed. `broken_rule`: one of broken_node.RULES, which the nodes do not keep, to see that it is.
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
            nodes = stack.enter_context(_running(folder, network, undo, broken_rule, outcome))
        bootstrap = against or ",".join(node.address for node in nodes)
        nemesis = Nemesis(nodes, network, seed, faults, say)
        name = f"{TOPIC}-{seed}-{int(time.time())}"
        scene = _Scene(folder, bootstrap, seed, name, f"{name}-txn", f"{name}-chains", recovery_s)
        for topic in scene.topics:
            _create_topic(bootstrap, topic)
        say(f"three brokers answer at {bootstrap}" if nodes else f"topics {name}* made at {bootstrap}")
        with _clients(scene):
            nemesis.run(duration_s)
            nemesis.heal()
            say("healed")
            _await_recovery(scene, outcome)
            time.sleep(2)  # with everybody in good health, once
        say("clients ended")
        # What was acknowledged last must be as durable as all before.
        if nemesis.end_all():
            _await_recovery(scene, outcome)
        say("reading everything")
        try:
            _read_all(scene)
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
    broken_rule: str | None,
    outcome: Outcome,
) -> Iterator[list[Node]]:
    nodes: list[Node] = []
    try:
        nodes += [Node(node_id, folder / f"node-{node_id}", network, undo, broken_rule) for node_id in _NODES]
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
def _clients(scene: _Scene) -> Iterator[None]:
    """Clients in processes of their own. Those end first whose records others read."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(module: str, what: str, name: str, topic: str, *more: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            f"tests.integration.faults.{module}",
            what,
            name,
            scene.bootstrap,
            topic,
        ]
        history = (scene.folder / f"{name}.jsonl").absolute()
        command += [str(PARTITIONS), f"{scene.seed}-{name}", str(history), *more]
        with (scene.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        processes.append(process)
        return process

    end_timeout_s = str(scene.recovery_s)
    own_partitions = random.Random(f"{scene.seed}-chains").choice(_CHAINS)
    try:
        producers = [
            start("client", "produce", f"producer{number}", scene.topic, kind, end_timeout_s)
            for number, kind in enumerate(_PRODUCERS, 1)
        ]
        producers += [
            start("transactional", "write", f"writer{number}", scene.transactional_topic, end_timeout_s)
            for number in range(1, _WRITERS + 1)
        ]
        chains = [
            start(
                "transactional",
                "chain",
                f"chain{number}",
                scene.transactional_topic,
                end_timeout_s,
                scene.group,
                own,
            )
            for number, own in enumerate(own_partitions, 1)
        ]
        consumers = [
            start("client", "consume", f"consumer{number}", scene.topic)
            for number in range(1, _CONSUMERS + 1)
        ]
        consumers.append(start("client", "consume", "reader1", scene.transactional_topic))
        yield
        for group in (producers, chains, consumers):
            for process in group:
                process.send_signal(signal.SIGTERM)
            for process in group:
                # Each of the calls under way has its own time.
                if process.wait(timeout=4 * scene.recovery_s + 30):
                    raise RuntimeError(f"a client failed: see the logs in {scene.folder}")
    finally:
        for process in processes:
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


def _await_recovery(scene: _Scene, outcome: Outcome) -> None:
    """Until every partition has its leader and all replicas in sync."""
    admin = AdminClient({"bootstrap.servers": scene.bootstrap, "log_level": 2})
    begun = time.monotonic()
    missing = "no answer"
    while time.monotonic() - begun < scene.recovery_s:
        try:
            answers = admin.describe_topics(TopicCollection(list(scene.topics)), request_timeout=5)
            partitions = [(topic, x) for topic in scene.topics for x in answers[topic].result().partitions]
        except KafkaException as error:
            missing = str(error)
        else:
            lagging = [
                f"{topic}-{x.id}"
                for topic, x in partitions
                if x.leader is None or len(x.isr) < len(x.replicas)
            ]
            if len(partitions) == PARTITIONS * len(scene.topics) and not lagging:
                return
            missing = f"partitions {lagging} have no leader, or not all replicas in sync"
        time.sleep(0.2)
    outcome.problems.append(f"not recovered {scene.recovery_s:.0f} s after everything was healed: {missing}")


def _read_all(scene: _Scene) -> None:
    """TimeoutError."""
    with History(scene.folder / "read.jsonl") as history:
        history.write(op="topic", topic=scene.transactional_topic, gaps=True)
        for topic in scene.topics:
            read_all(scene.bootstrap, topic, PARTITIONS, history, scene.recovery_s)
        read_committed_offsets(
            scene.bootstrap, scene.group, scene.transactional_topic, PARTITIONS, history, scene.recovery_s
        )


def _judge(folder: Path, outcome: Outcome) -> None:
    files = tuple(sorted(folder.glob("*.jsonl")))
    try:
        outcome.checked = report(check(read_operations(files)), files)
    except HistoryError as error:
        outcome.problems.append(str(error))
        return
    (folder / "report.json").write_text(json.dumps(outcome.checked, indent=2), encoding="utf-8")
    outcome.problems += [operation["problem"] for operation in _lines(files) if "problem" in operation]
    outcome.longest_unavailability_s = longest_unavailability_s(_lines(files))


def _lines(files: tuple[Path, ...]) -> Iterator[dict[str, Any]]:
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def longest_unavailability_s(operations: Iterable[dict[str, Any]]) -> float:
    """The longest that one partition went without an acknowledgement while clients asked for some, in seconds.

    Clients with transactions do not count: they pause, and write down their records when the transaction ends.
    """
    times: dict[int, list[int]] = {}
    for operation in operations:
        if operation["op"] == "send" and operation["outcome"] == "ok" and "txn" not in operation:
            times.setdefault(operation["partition"], []).append(operation["end_ns"])
    gaps = [after - before for ends in times.values() for before, after in pairwise(sorted(ends))]
    return max(gaps, default=0) / 1e9


def random_seed() -> int:
    return random.SystemRandom().randrange(1_000_000)
