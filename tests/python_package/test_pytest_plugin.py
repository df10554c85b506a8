"""The fixtures, in a project of a user whose modules have names of ours; pytest runs in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.processes import find_process
from tests.integration.harness import eventually
from tests.python_package.helpers import assert_ended, node_processes

HEAD = """
import json, pathlib
import broker, protocol
from confluent_kafka import Producer


def produce(cluster, topic):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, "a")
    assert producer.flush(30) == 0
"""
Project = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """`project(tests)`: the folder of a project with these tests."""
    for name in ("broker", "protocol", "storage"):
        (tmp_path / f"{name}.py").write_text(f"def answer():\n    return '{name}'\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def make(tests: str) -> Path:
        (tmp_path / "test_of_user.py").write_text(HEAD + tests, encoding="utf-8")
        return tmp_path

    return make


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]


def run(folder: Path, *arguments: str) -> tuple[dict[str, int], str]:
    """How many tests passed, failed and so on, and everything that was printed."""
    done = subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    output = done.stdout + done.stderr
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    return {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}, output


def test_topics_are_new_and_gone_afterwards(project: Project) -> None:
    folder = project("""
def test_first(varve_cluster, varve_topic, varve_topics):
    other = varve_topics(partitions=2, settings={"cleanup.policy": "compact"})
    assert varve_topic != other and varve_topic.startswith("test_first-")
    produce(varve_cluster, varve_topic)
    assert f"{other}-1  leader" in varve_cluster.describe()
    assert (broker.answer(), protocol.answer()) == ("broker", "protocol")

import pytest

@pytest.mark.parametrize("odd", ["with spaces / and" + "x" * 300])
def test_second(varve_cluster, varve_topic, odd):
    assert "test_first" not in varve_cluster.describe(log_lines=0)
    produce(varve_cluster, varve_topic)
""")
    outcome, output = run(folder, "--varve-nodes=1")
    assert outcome == {"passed": 2}, output


def test_the_cluster_is_whole_again_after_faults(project: Project) -> None:
    folder = project("""
def test_leader_dies(varve_topic, varve_faults):
    varve_faults.kill(varve_faults.leader(varve_topic))
    produce(varve_faults, varve_topic)
    varve_faults.pause(varve_faults.leader(varve_topic))

def test_whole(varve_cluster):
    assert varve_cluster.describe().count("running, pid") == 3

def test_all_die(varve_topics, varve_faults):
    varve_topics()
    varve_faults.kill()

def test_whole_again(varve_cluster, varve_topic):
    produce(varve_cluster, varve_topic)
    assert varve_cluster.describe().count("running, pid") == 3
""")
    outcome, output = run(folder)
    assert outcome == {"passed": 4}, output


def test_a_failure_comes_with_the_state_of_the_cluster(project: Project) -> None:
    folder = project("""
def test_fails(varve_cluster, varve_topic):
    produce(varve_cluster, varve_topic)
    assert varve_topic == "another"

def test_fails_without():
    assert False
""")
    outcome, output = run(folder, "--varve-nodes=1", "--varve-setting", "num.partitions=2")
    assert outcome == {"failed": 2}, output
    assert output.count("Varve cluster at the end of call") == 1
    assert re.search(r"test_fails-1-0  leader node 1  replicas 1  in sync 1  offsets 0 to 1", output)
    assert re.search(r"the end of .*node-1/log\n.*started", output, re.DOTALL)


def test_a_node_that_crashes_spoils_the_run(project: Project) -> None:
    folder = project("""
import os, signal

def test_crash(varve_cluster):
    (path,) = pathlib.Path(varve_cluster.directory).glob("node-1/pid")
    os.kill(json.loads(path.read_text())[0], signal.SIGKILL)
    while "ENDED BY ITSELF" not in varve_cluster.describe():
        pass
""")
    outcome, output = run(folder, "--varve-nodes=1")
    assert outcome == {"passed": 1, "error": 1}, output
    assert "node 1 has ended by itself" in output


def test_options_and_ini(project: Project) -> None:
    folder = project("""
def test_layout(varve_cluster):
    assert varve_cluster.node_ids == (1, 2)
    produce(varve_cluster, "by-itself")
    assert "by-itself-4  leader" in varve_cluster.describe()
""")
    with (folder / "pytest.ini").open("a") as ini:
        ini.write("varve_nodes = 2\nvarve_settings =\n  num.partitions=3\n  auto.create.topics.enable=true\n")
    outcome, output = run(folder, "--varve-setting=num.partitions=5")
    assert outcome == {"passed": 1}, output
    for wrong in ("--varve-nodes=0", "--varve-nodes=many", "--varve-setting=alone"):
        outcome, output = run(folder, wrong)
        assert outcome == {} and output.startswith("ERROR: --varve"), output


def test_workers_have_clusters_of_their_own(project: Project) -> None:
    folder = project("""
import pytest

@pytest.mark.parametrize("number", range(4))
def test_write(varve_cluster, varve_topic, number):
    produce(varve_cluster, varve_topic)
    with open("clusters", "a") as file:
        file.write(varve_cluster.bootstrap_servers + "\\n")
""")
    outcome, output = run(folder, "-n", "2", "--varve-nodes=1")
    assert outcome == {"passed": 4}, output
    assert len(set((folder / "clusters").read_text().split())) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_run_that_is_broken_off_leaves_no_node(number: signal.Signals, project: Project) -> None:
    """Ctrl-C reaches the whole group of processes that the terminal has in the foreground."""
    folder = project("""
import threading

def test_hangs(varve_cluster):
    pathlib.Path("unfinished").write_text(varve_cluster.directory)
    pathlib.Path("unfinished").rename("directory")
    threading.Event().wait()
""")
    with subprocess.Popen(
        command("--varve-nodes=2"), cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        path = folder / "directory"
        eventually(path.exists, "the test that hangs", timeout_s=60)
        nodes = node_processes(path.read_text())
        assert all(find_process(node.pid) == node for node in nodes.values())
        os.killpg(process.pid, number)
        process.communicate(timeout=60)
    assert_ended(nodes)
    assert process.returncode in (2, -signal.SIGKILL)
