"""The distribution: its generic package names are ours alone, and nobody can slip in others."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "protocol", "raft", "storage", "pipeline")


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
