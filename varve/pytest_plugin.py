"""Fixtures for pytest: a cluster for the session, topics for a test, faults that are healed afterwards.

pytest finds this module by itself where Varve is installed. Nothing is started before a test wants it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Protocol

import pytest

from varve.cluster import Cluster, Value
from varve.errors import ClusterError

_CLUSTER = pytest.StashKey[Cluster]()
_TOPIC_NUMBERS = pytest.StashKey[Iterator[int]]()
#: Kafka allows 249 characters; the number of the topic has room behind it.
_MAX_NAME = 200


class TopicFactory(Protocol):
    """The fixture `varve_topics`: makes a new topic of the test's own, and gives its name."""

    def __call__(
        self,
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("varve", "a Varve cluster for tests")
    group.addoption(
        "--varve-nodes",
        metavar="NUMBER",
        help="Number of nodes of the cluster for tests.  [default: varve_nodes]",
    )
    group.addoption(
        "--varve-setting",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A setting of every node, on top of varve_settings. Repeatable.",
    )
    parser.addini("varve_nodes", "Number of nodes of the cluster for tests.", default="3")
    parser.addini(
        "varve_settings", "Settings of every node, KEY=VALUE in each line.", type="linelist", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    """Wrong options end the run before the first test."""
    config.stash[_CLUSTER] = _new_cluster(config)


@pytest.fixture(scope="session")
def varve_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster for all tests of this process (with xdist: of this worker). Leave it whole, or use
    `varve_faults`."""
    with pytestconfig.stash[_CLUSTER] as cluster:
        yield cluster


@pytest.fixture
def varve_topics(varve_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """`varve_topics(partitions=3)` makes a new topic and gives its name. The topics are deleted after the test."""
    numbers = request.config.stash.setdefault(_TOPIC_NUMBERS, itertools.count(1))
    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_MAX_NAME]
    made: list[str] = []

    def make(
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> str:
        name = f"{test}-{next(numbers)}"
        varve_cluster.create_topic(name, partitions, replication_factor, settings)
        made.append(name)
        return name

    yield make
    for name in made:
        varve_cluster.delete_topic(name)


@pytest.fixture
def varve_topic(varve_topics: TopicFactory) -> str:
    """The name of a new topic with one partition, which is deleted after the test."""
    return varve_topics()


# It depends on the topics, so that they are deleted when the cluster is whole again.
@pytest.fixture
def varve_faults(varve_cluster: Cluster, varve_topics: TopicFactory) -> Iterator[Cluster]:
    """The cluster, to be damaged: `kill`, `restart`, `pause` and `resume` of nodes. It is whole again after the
    test."""
    yield varve_cluster
    varve_cluster.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the state of the cluster to the report of a test that used it and failed."""
    report = yield
    cluster = item.config.stash[_CLUSTER]
    used = "varve_cluster" in getattr(item, "fixturenames", ())
    if report.failed and used and cluster.is_started:
        try:
            text = cluster.describe()
        except ClusterError as error:
            text = f"the cluster cannot be described: {error}"
        report.sections.append((f"Varve cluster at the end of {call.when}", text))
    return report


def _new_cluster(config: pytest.Config) -> Cluster:
    nodes = config.getoption("--varve-nodes") or config.getini("varve_nodes")
    settings = {}
    for line in [*config.getini("varve_settings"), *config.getoption("--varve-setting")]:
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise pytest.UsageError(f"--varve-setting and varve_settings are KEY=VALUE, not {line}")
        settings[key.strip()] = value.strip()
    try:
        return Cluster(int(nodes), settings)
    except ValueError as error:
        raise pytest.UsageError(f"--varve-nodes or varve_nodes: {error}") from None
