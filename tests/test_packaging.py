"""The distribution: what is in it, and that its generic package names are ours alone and nobody else can slip in."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("varve", "broker", "protocol", "raft", "storage", "pipeline")
INFO = f"varve-{importlib.metadata.version('varve')}.dist-info"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of the files in the source distribution (below its folder) and in the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(source) as tar, zipfile.ZipFile(wheel) as archive:
        return {
            "sdist": {name.partition("/")[2] for name in tar.getnames()},
            "wheel": set(archive.namelist()),
        }


def test_both_distributions_hold_the_license(built: dict[str, set[str]]) -> None:
    assert "LICENSE" in built["sdist"]
    assert f"{INFO}/licenses/LICENSE" in built["wheel"]
    assert importlib.metadata.metadata("varve")["License-Expression"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]


def test_the_wheel_holds_the_product_and_nothing_else(built: dict[str, set[str]]) -> None:
    data = INFO.replace(".dist-info", ".data")
    top = {name.partition("/")[0] for name in built["wheel"]}
    assert top == {"varve", "pipeline", "pyspark_varve", INFO, data}
    assert "pyspark_varve/__init__.py" in built["wheel"]


def test_an_installation_takes_no_generic_name_but_one(built: dict[str, set[str]]) -> None:
    """`pipeline` is imported by users, so it stays at the top."""
    hidden = {path.split("/")[2] for path in built["wheel"] if path.startswith("varve/_packages/")}
    assert hidden == {*PACKAGES} - {"varve", "pipeline"}
    assert "varve/_packages/broker/cli/attached/__main__.py" in built["wheel"]


def test_the_source_distribution_holds_what_a_change_needs(built: dict[str, set[str]]) -> None:
    folders = {name.partition("/")[0] for name in built["sdist"] if "/" in name}
    assert folders == {*PACKAGES, "benchmarks", "monitoring", "docs", "examples", "scripts", "tests"}


@pytest.mark.parametrize("package", PACKAGES)
def test_nobody_else_owns_the_name(package: str) -> None:
    owners = importlib.metadata.packages_distributions().get(package, [])
    assert set(owners) <= {"varve"}
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


def test_the_command_ignores_packages_of_the_same_name(tmp_path: Path) -> None:
    """PYTHONPATH and the working directory hold a `broker` that would end the process."""
    command = Path(sys.executable).with_name("varve")
    if not command.exists():
        pytest.skip("the command is not installed in this environment; scripts/test installs it")
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "__init__.py").write_text("raise SystemExit('the wrong broker')")
    done = subprocess.run(
        [command, "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"varve {importlib.metadata.version('varve')}\n"
