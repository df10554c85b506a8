"""One Spark session for all tests here; they are skipped, and say so, where the extra `spark` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.spark.connector import Connector


@pytest.fixture(scope="session")
def connector() -> Connector | None:
    """Spark's Kafka connector; None where its jars cannot be had, and the reason is printed."""
    pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")
    from pipeline.spark.connector import choose_connector

    return choose_connector("auto", None, print)


@pytest.fixture(scope="session")
def spark(connector: Connector | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pipeline.spark.session import spark_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session(log, 2, records=1_000, connector=connector) as session:
        # Tiny frames: what takes the time is the number of tasks.
        session.conf.set("spark.sql.shuffle.partitions", "1")
        yield session
