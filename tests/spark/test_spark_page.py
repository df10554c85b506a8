"""The program in docs/spark.md, as a reader copies it, but for where the connector's jars come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.markdown import blocks
from tests.spark.target import Target
from tests.test_tidy import ROOT

PAGE = ROOT / "docs" / "spark.md"
#: What the page has, for Maven Central. Here it is the connector that the other tests use.
PACKAGES = '"spark.jars.packages", connector'
SERVERS = "localhost:19092,localhost:29092,localhost:39092"


@pytest.mark.slow
@pytest.mark.usefixtures("connected")
def test_the_program_of_the_page(target: Target, tmp_path: Path) -> None:
    from pipeline.spark.connector import find_connector

    (program,) = (block.text for block in blocks(PAGE) if block.language == "python")
    assert PACKAGES in program
    assert SERVERS in program
    target.create("numbers", 3)
    jars = ",".join(map(str, find_connector().jars))
    program = program.replace(PACKAGES, f'"spark.jars", "{jars}"').replace(SERVERS, target.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
