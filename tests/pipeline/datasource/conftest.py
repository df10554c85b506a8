"""One real broker for all tests here; they are skipped, and say so, where the extra `spark` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import varve

if TYPE_CHECKING:
    from tests.pipeline.datasource.topics import Topics


@pytest.fixture(scope="session")
def topics() -> Iterator[Topics]:
    from tests.pipeline.datasource.topics import Topics

    with varve.Cluster(1) as cluster:
        yield Topics(cluster.bootstrap_servers)
