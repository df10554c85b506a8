"""One real broker for all tests here; they are skipped, and say so, where the extra `spark` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.harness import BrokerCluster

if TYPE_CHECKING:
    from tests.pipeline.datasource.topics import Topics


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    from tests.pipeline.datasource.topics import Topics

    cluster = BrokerCluster(tmp_path_factory.mktemp("broker"), size=1)
    try:
        cluster.start()
        yield Topics(cluster.bootstrap)
    finally:
        cluster.close()
