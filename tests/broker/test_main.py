"""What the process asks of the system before the node starts, and what it says of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.config.descriptors import MIN_LIMIT, limit_for, replicas_of
from broker.metadata.ids import OFFSETS_TOPIC_NAME
from tests.integration.harness import eventually
from tests.ports import free_ports


def test_a_node_may_open_as_many_files_as_the_system_allows() -> None:
    """In a process of its own: a limit holds for the whole process."""
    code = (
        "import resource as r; from broker.main import allow_many_files\n"
        "hard = min(r.getrlimit(r.RLIMIT_NOFILE)[1], 3000)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (hard // 2, hard))\n"
        "assert allow_many_files() == hard\n"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (hard, hard)\n"
        "assert allow_many_files() == hard"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("replicas", [1, 39, 100, 1000, 1001, 50_000])
def test_the_limit_that_is_asked_for_is_enough_and_not_more(replicas: int) -> None:
    limit = limit_for(replicas)
    assert replicas_of(limit) >= replicas > replicas_of(limit - 2)


def _start(tmp_path: Path, port: int, limit: int) -> subprocess.Popen[bytes]:
    with (tmp_path / "log").open("wb") as log:
        return subprocess.Popen(
            [
                *("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"),
                *(sys.executable, "-m", "broker.cli", "start", "--log-dirs", str(tmp_path / "data")),
                *("--listeners", f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}"),
                *("--controller-quorum-voters", f"1@127.0.0.1:{port + 1}"),
            ],
            stdout=log,
            stderr=log,
        )


def test_a_node_that_may_open_too_few_files_says_how_many_it_needs(tmp_path: Path) -> None:
    node = _start(tmp_path, free_ports(1)[0], MIN_LIMIT - 1)
    assert node.wait(60) == 1
    said = (tmp_path / "log").read_text()
    assert said.startswith(
        "varve: the process may open 127 files, and a node needs 128 to start, 496 to serve"
    )
    assert "ulimit -n 4096" in said
    assert not (tmp_path / "data").exists()


def test_topics_for_which_a_node_may_not_open_files_are_refused_and_the_node_goes_on(tmp_path: Path) -> None:
    """It created them, could not open them, and then neither served nor ended."""
    limit = 256
    room = replicas_of(limit)
    (port,) = free_ports(1)
    node = _start(tmp_path, port, limit)
    try:
        log = tmp_path / "log"
        eventually(lambda: "started" in log.read_text(), "the node serves")
        assert "few open files" in log.read_text() and "needed=496" in log.read_text()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        _refused(admin.create_topics([NewTopic("many", 100)])["many"], f"room for {room}")
        admin.create_topics([NewTopic("few", 2)])["few"].result(30)
        _refused(admin.create_partitions([NewPartitions("few", room + 1)])["few"], f"room for {room}")
        assert _led(admin, "few") == 2
        # The first group has the topic of the offsets created, of 50 partitions, which clients cannot do without. Those
        # that have no room wait for some.
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g"})
        consumer.subscribe(["few"])
        eventually(lambda: consumer.poll(0.1) or _led(admin, OFFSETS_TOPIC_NAME) == room - 2, "it is led")
        consumer.close()
        assert "partitions are not opened" in log.read_text()
        admin.delete_topics(["few"])["few"].result(30)
        eventually(lambda: _led(admin, OFFSETS_TOPIC_NAME) == room, "two more are led")
        assert node.poll() is None
    finally:
        node.terminate()
        assert node.wait(60) == 0


def _led(admin: AdminClient, topic: str) -> int:
    """How many of its partitions have a leader."""
    return sum(
        each.leader == 1 for each in admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
    )


def _refused(future: object, reason: str) -> None:
    with pytest.raises(KafkaException) as refused:
        future.result(30)  # type: ignore[attr-defined]
    error = refused.value.args[0]
    assert error.name() == "POLICY_VIOLATION"
    assert reason in error.str() and "ulimit -n" in error.str()
