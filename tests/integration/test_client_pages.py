"""The programs in docs/clients.md, docs/transactions.md and README.md, as a reader copies them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.markdown import blocks
from tests.integration.harness import ROOT, BrokerCluster
from tests.integration.test_java_groups import class_path
from tests.storage.test_kafka_reads_our_files import pytestmark as needs_kafkas_jars

CLIENTS = ROOT / "docs" / "clients.md"
#: What the pages have for the cluster of `varve cluster up`.
SERVERS = "localhost:19092,localhost:29092,localhost:39092"
LIMIT_S = 120


def program(page: Path, language: str, word: str, cluster: BrokerCluster) -> str:
    """The block of the page that has this word, for this cluster."""
    (found,) = (each.text for each in blocks(page) if each.language == language and word in each.text)
    assert SERVERS in found
    return found.replace(SERVERS, cluster.bootstrap)


def run(*command: str, cwd: Path, stdin: str = "") -> str:
    done = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def hello(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        wire.create("hello", partitions=3)
    for partition in range(3):
        cluster.leader_of("hello", partition)


def check_hello(out: str, key: str = "key {}") -> None:
    """Three records were written, each line naming its place, and three or more were read, each line with its key."""
    written, read = out.splitlines()[:3], out.splitlines()[3:]
    assert [re.match(r"hello-[0-2]( at offset |@)\d+$", line) is not None for line in written] == [True] * 3
    assert len(read) >= 3
    assert all(any(key.format(number) in line for number in range(3)) for line in read)


@pytest.mark.usefixtures("hello")
@pytest.mark.parametrize("library", ["confluent_kafka", "aiokafka"])
def test_python_clients(library: str, cluster: BrokerCluster, tmp_path: Path) -> None:
    text = program(CLIENTS, "python", f"from {library} import", cluster)
    check_hello(run(sys.executable, "-c", text, cwd=tmp_path))


@pytest.mark.usefixtures("hello")
@needs_kafkas_jars[0]
@needs_kafkas_jars[1]
def test_java(cluster: BrokerCluster, tmp_path: Path) -> None:
    (tmp_path / "Hello.java").write_text(program(CLIENTS, "java", "class Hello", cluster))
    check_hello(run("java", "-cp", class_path(), "Hello.java", cwd=tmp_path))


@pytest.mark.skipif(not shutil.which("kcat"), reason="kcat is not installed (Debian: apt-get install kcat)")
@pytest.mark.usefixtures("hello")
def test_kcat(cluster: BrokerCluster, tmp_path: Path) -> None:
    (block,) = (each.text for each in blocks(CLIENTS) if each.text.startswith("kcat "))
    listing, producing, consuming, group = block.splitlines()
    assert " -G " in group, "the last one runs until Ctrl-C, and is not run here"
    script = "\n".join([listing, producing, consuming]).replace("localhost:19092", cluster.bootstrap)
    out = run("bash", "-euo", "pipefail", "-c", script, cwd=tmp_path)
    assert 'topic "hello" with 3 partitions' in out
    assert re.search(r"^hello-[0-2] \d+ ann book$", out, re.MULTILINE)


def test_transactions(cluster: BrokerCluster, tmp_path: Path) -> None:
    with cluster.wire() as wire:
        wire.create("payments", partitions=3)
    text = program(ROOT / "docs" / "transactions.md", "python", "begin_transaction", cluster)
    out = run(sys.executable, "-c", text, cwd=tmp_path)
    assert sorted(re.findall(rb"[-+]10", out.encode())) == [b"+10", b"-10"]


def test_the_first_program_of_the_readme(cluster: BrokerCluster, tmp_path: Path) -> None:
    with cluster.wire() as wire:
        wire.create("first", partitions=3)
    text = program(ROOT / "README.md", "python", "Consumer", cluster)
    assert "b'hello' 0" in run(sys.executable, "-c", text, cwd=tmp_path)
