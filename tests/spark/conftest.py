"""One Spark session and one cluster of three nodes for all tests here; a reader and a topic name for each.

`VARVE_SPARK_BOOTSTRAP_SERVER` (scripts/spark-test --bootstrap-server) names another cluster. Tests that kill nodes are
then skipped, and say so.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import running
from tests.integration.harness import BrokerCluster
from tests.spark.options import DEPRECATED
from tests.spark.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.reading import Reader

#: Set by scripts/spark-test: what cannot be had then ends the run with code 2. A skip would look like a pass.
IS_REQUIRED = "VARVE_SPARK_REQUIRED"
BOOTSTRAP = "VARVE_SPARK_BOOTSTRAP_SERVER"
TASKS = 2
#: Groups form at once, and transactions whose time is over are found soon.
SETTINGS = {
    "log__retention__check__interval__ms": "500",
    "group__initial__rebalance__delay__ms": "0",
}


@pytest.fixture(scope="session")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in which `format("kafka")` is the official connector."""
    if not os.environ.get(IS_REQUIRED):
        pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")
    from pipeline.errors import ConnectorUnavailable, JavaMissing
    from pipeline.spark.connector import find_connector
    from pipeline.spark.session import spark_session

    with ExitStack() as stack:
        try:
            connector = find_connector()
            log = tmp_path_factory.mktemp("spark") / "spark.log"
            session = stack.enter_context(spark_session(log, TASKS, records=1_000, connector=connector))
        except (ConnectorUnavailable, JavaMissing) as error:
            if os.environ.get(IS_REQUIRED):
                pytest.exit(str(error), returncode=2)
            pytest.skip(str(error))
        session.conf.set("spark.sql.shuffle.partitions", "1")
        # Progress is told also of triggers that find nothing.
        session.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
        yield session


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if bootstrap := os.environ.get(BOOTSTRAP):
        yield Target(bootstrap, None)
        return
    with running(tmp_path_factory.mktemp("spark-cluster"), 3, **SETTINGS) as nodes:
        yield Target(nodes.bootstrap, nodes)
        for broker in nodes.brokers.values():
            assert broker.is_running, broker.log_text()[-3000:]
            assert "Traceback" not in broker.log_text()


@pytest.fixture
def nodes(target: Target) -> BrokerCluster:
    """The nodes themselves, to be killed and started again within the test."""
    if target.nodes is None:
        pytest.skip(f"{BOOTSTRAP} names a cluster whose nodes are not ours to kill")
    return target.nodes


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test and no other run has. The part before the last dash is the test's."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    return f"{plain[:80]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def reader(connected: SparkSession, target: Target, tmp_path: Path) -> Iterator[Reader]:
    from tests.spark.reading import Reader

    made = Reader(connected, target, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["false", "true"], ids=["admin", "consumer"])
def offset_fetching(request: pytest.FixtureRequest, connected: SparkSession) -> Iterator[str]:
    """Both values of useDeprecatedOffsetFetching: an admin client, or a consumer that joins a group."""
    connected.conf.set(DEPRECATED, request.param)
    yield request.param
    connected.conf.unset(DEPRECATED)
