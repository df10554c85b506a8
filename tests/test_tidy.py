"""Tidiness as a test: sizes, READMEs, executables, dead files (style.md sections 2.17 and 2.20).

What ruff, mypy and import-linter can check is theirs; here is the rest.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What the distribution installs.
PACKAGES = ("varve", "broker", "protocol", "raft", "storage", "pipeline")
#: Packages of the checkout that no user installs.
TOOLS = ("benchmarks",)
MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 800
#: ... of the product.
MAX_PRODUCT_MODULE_LINES = 400
#: Modules that nobody imports because something else starts them.
ENTRY_POINTS = {"__init__", "__main__", "conftest", "launcher", "pytest_plugin"}


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the checkout, tracked or new but not ignored; all files where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        return tuple(path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts)
    return tuple(path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and (not folders or path.relative_to(ROOT).parts[0] in folders)
    ]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_fit_on_a_screen() -> None:
    """Docstring and signature do not count: they are there to be read first."""
    too_long = []
    for path in python_files():
        for function in functions(path):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            lines = (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > MAX_FUNCTION_LINES:
                too_long.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {lines} lines")
    assert not too_long


def test_modules_stay_readable() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert not {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > MAX_MODULE_LINES}
    product = {path: sizes[path] for path in python_files("broker", "raft", "storage")}
    too_long = {
        str(path.relative_to(ROOT)): size for path, size in product.items() if size > MAX_PRODUCT_MODULE_LINES
    }
    assert not too_long


@pytest.mark.parametrize("package", PACKAGES + TOOLS)
def test_every_package_says_what_it_is_and_ends_with_what_is_not_obvious(package: str) -> None:
    readme = (ROOT / package / "README.md").read_text(encoding="utf-8")
    titles = re.findall(r"^# .+$", readme, re.MULTILINE)
    sections = re.findall(r"^## (.+)$", readme, re.MULTILINE)
    assert len(titles) == 1
    assert sections, f"{package}/README.md has no sections"
    assert sections[-1] == "Non-obvious"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed_for_its_users(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_every_module_explains_itself() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files(*PACKAGES, *TOOLS)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_scripts_can_be_run() -> None:
    for path in tracked():
        relative = path.relative_to(ROOT)
        is_script = path.read_bytes()[:2] == b"#!"
        if relative.parts[0] in ("scripts", ".ci") and len(relative.parts) == 2 and not path.suffix:
            assert is_script, f"{relative} has no #! line"
        if is_script:
            assert os.access(path, os.X_OK), f"{relative} is a script, but not executable"


def test_no_module_is_dead() -> None:
    """Each module is named in an import, or in text (a lazily imported command), of some other file."""
    texts = {path: path.read_text(encoding="utf-8") for path in python_files()}
    dead = []
    for path in python_files(*PACKAGES, *TOOLS):
        if path.stem in ENTRY_POINTS:
            continue
        name = re.compile(rf"\b{re.escape(path.stem)}\b")
        if not any(name.search(text) for other, text in texts.items() if other != path):
            dead.append(str(path.relative_to(ROOT)))
    assert not dead


#: The modules that tell a replica's Raft group facts. What it orders is carried out before anything else happens.
DOOR_TO_A_GROUP = {"raft_driver.py", "leader_appends.py", "sender.py"}


def test_a_group_is_told_facts_through_one_door() -> None:
    """Every fact of `raft.group.Group` is told by the replica's driver, or by what it does with every batch."""
    (group,) = (
        node
        for node in ast.parse((ROOT / "raft/group.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Group"
    )
    facts = {node.name for node in group.body if isinstance(node, ast.FunctionDef)}
    assert {"appended", "vote_requested", "quorum_lost"} <= facts
    intruders = []
    for path in python_files("broker"):
        inside = path.parent == ROOT / "broker/replication" and path.name in DOOR_TO_A_GROUP
        # A group of consumers is something else.
        if inside or path.parent == ROOT / "broker/groups":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Attribute) and node.attr in facts):
                continue
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("group", "_group"):
                intruders.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}")
    assert not intruders
