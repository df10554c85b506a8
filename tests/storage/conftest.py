"""Fixtures of the storage tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.helpers import InlineDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[InlineDisk]:
    disk = InlineDisk(str(tmp_path))
    yield disk
    disk.close()
