"""Every query of the alerts and of the dashboard, against a cluster to which everything happens that they ask for.

The names and labels in them are always checked. Where Prometheus is installed, it runs them.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.metrics.scrape import Scrape
from tests.integration.conftest import make_cluster
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, TOPIC, churn
from tests.monitoring.loaded_cluster import AWAY, loaded_cluster, use
from tests.monitoring.promql import FOLDER, Query, alerts, labels_in_legend, names_in, panels
from tests.ports import free_ports

__all__ = ["make_cluster"]
#: Prometheus adds these labels, and this metric.
OF_PROMETHEUS = {"instance", "job"}
UP = "up"
PROMETHEUS = shutil.which("prometheus")


class Shown:
    """What the running nodes of a cluster show together."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._scrapes = [Scrape(broker.metrics()) for broker in cluster.running]

    def labels_of(self, metric: str) -> set[str]:
        """All that the metric has. Fails where no node shows it."""
        found = [labels for each in self._scrapes for labels in each.labels_of(metric)]
        assert found, f"no node shows {metric}"
        return set().union(*found)


def test_every_query_asks_for_what_there_is(make_cluster: Any) -> None:
    cluster = loaded_cluster(make_cluster)
    shown = Shown(cluster)
    for query in [*alerts(), *panels()]:
        _check_names(query, shown)
    if PROMETHEUS is not None:
        _check_results(cluster)
    for broker in cluster.running:
        assert "the metrics could not be made" not in broker.log_text()


def _check_names(query: Query, shown: Shown) -> None:
    names = names_in(query.text)
    assert names.metrics, query
    known = set(OF_PROMETHEUS)
    for metric, labels in names.metrics.items():
        if metric != UP:
            of_metric = shown.labels_of(metric)
            known |= of_metric
            assert labels <= of_metric | OF_PROMETHEUS, (query.where, metric, labels - of_metric)
    assert names.grouping <= known, (query.where, names.grouping - known)
    assert labels_in_legend(query.legend) <= known, (query.where, query.legend)


# -- with a real Prometheus --------------------------------------------------------------------------------


def _check_results(cluster: BrokerCluster) -> None:
    targets = [f"localhost:{broker.metrics_port}" for broker in cluster.brokers.values()]
    with _prometheus(cluster[1].directory.parent, targets) as prometheus:
        eventually(
            lambda: len(prometheus.result("varve_node_ready")) == len(cluster.running),
            "all nodes are scraped",
        )
        for _ in range(3):  # rates need two scrapes, and something that happens between them
            use(cluster)
            churn(cluster, 1)
        empty = {query.where: query.text for query in panels() if not prometheus.result(query.text)}
        assert not empty
        (down,) = prometheus.result('up{job="varve"} == 0')
        assert down["metric"]["instance"] == targets[AWAY - 1]
        pins = prometheus.result(f'varve_compaction_pinned_seconds{{topic="{TOPIC}"}}')
        assert {each["metric"]["replica"] for each in pins} == {str(AWAY)}
        assert not [rule["name"] for rule in prometheus.rules() if rule["health"] != "ok"]
        # What a node that is away sets off. They wait for their time then.
        expected = {"VarveNodeDown", "VarvePartitionsUnderReplicated", "VarveCompactionPinned"}
        eventually(
            lambda: expected <= {rule["name"] for rule in prometheus.rules() if rule["alerts"]},
            f"{expected} are pending",
            LIMIT_S,
        )


class _Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def result(self, query: str) -> list[dict[str, Any]]:
        """The series that a query gives now, without those that are no number."""
        found = self.ask("/api/v1/query", query=query)
        assert found["resultType"] == "vector"
        return [each for each in found["result"] if not math.isnan(float(each["value"][1]))]

    def rules(self) -> list[dict[str, Any]]:
        """When each of them has been evaluated."""

        def look() -> list[dict[str, Any]] | None:
            found = [rule for group in self.ask("/api/v1/rules")["groups"] for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else None

        return eventually(look, "the rules are evaluated")


@contextmanager
def _prometheus(folder: Path, targets: list[str]) -> Iterator[_Prometheus]:
    assert PROMETHEUS is not None
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yml")],
        "scrape_configs": [{"job_name": "varve", "static_configs": [{"targets": targets}]}],
    }
    file = folder / "prometheus.json"
    file.write_text(json.dumps(config), encoding="utf-8")  # YAML holds JSON
    command = [PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
        try:
            prometheus = _Prometheus(port)
            eventually(prometheus.is_ready, "Prometheus answers", 60)
            yield prometheus
        finally:
            process.terminate()
            process.wait(timeout=30)
