"""An installation from the wheel, with pytest and nothing else, in the project of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.ports import free_ports

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow

TESTS = """
import importlib.util

import broker, protocol, storage
from confluent_kafka import Producer


def write(cluster, topic):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(1000):
        producer.produce(topic, str(number), key="k")
        if number % 50 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def test_first(varve_cluster, varve_topic):
    write(varve_cluster, varve_topic)
    assert broker.MINE and protocol.MINE and storage.MINE
    assert importlib.util.find_spec("raft") is None


def test_second(varve_topic, varve_faults):
    varve_faults.kill(varve_faults.leader(varve_topic))
    write(varve_faults, varve_topic)


def test_compaction_runs_in_a_process_of_its_own(varve_cluster, varve_topics):
    settings = {"cleanup.policy": "compact", "segment.bytes": 4096, "min.cleanable.dirty.ratio": 0}
    write(varve_cluster, varve_topics(settings=settings))
    while "compacted " not in varve_cluster.log(1, lines=1000):
        pass
    assert "died" not in varve_cluster.log(1, lines=1000)
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of a new virtual environment."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    found = folder / "venv" / "bin"
    install = [str(found / "python"), "-m", "pip", "install", "--quiet", str(wheel), "pytest"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("broker", "protocol", "storage"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n", encoding="utf-8")
    return tmp_path


def run(command: list[str | Path], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_plugin_works_beside_modules_of_the_same_names(commands: Path, project: Path) -> None:
    (project / "test_of_user.py").write_text(TESTS, encoding="utf-8")
    settings = ("varve.compaction.initial.delay.ms=200", "varve.compaction.interval.ms=300")
    options = [f"--varve-setting={setting}" for setting in settings]
    said = run([commands / "pytest", "--durations=9", "-vv", *options], project)
    assert re.search(r"3 passed in", said), said
    print(said)


def test_the_example_of_the_readme_works(commands: Path, project: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "varve/README.md").read_text(), re.DOTALL)
    program, tests = examples
    (project / "program.py").write_text(program, encoding="utf-8")
    (project / "test_example.py").write_text(tests, encoding="utf-8")
    assert run([commands / "python", "program.py"], project).count("localhost:") == 3
    assert "1 passed" in run([commands / "pytest"], project)


def test_the_command_works_there(commands: Path, project: Path) -> None:
    for command in ([commands / "varve"], [commands / "python", "-m", "varve"]):
        up = run([*command, "cluster", "up", "--ports", str(free_ports(1)[0])], project)
        try:
            assert "1 node answers" in up
            run([*command, "health"], project)
        finally:
            down = run([*command, "cluster", "down", "--delete-data", "--yes"], project)
        assert "stopped" in down
