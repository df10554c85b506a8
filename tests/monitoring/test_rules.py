"""The files of monitoring/ as the programs read them for which they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.monitoring.promql import DASHBOARD, FOLDER, alert_rules

ROOT = FOLDER.parent
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool (Debian's package prometheus has it)"
)


def promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "--lint-fatal", "alerts.yml")


@needs_promtool
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-local.yml"])
def test_promtool_accepts_the_configurations(name: str) -> None:
    promtool("check", "config", name)


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_no_alert_is_left_out_of_these_tests() -> None:
    tested = (FOLDER / "alerts_test.yml").read_text(encoding="utf-8")
    assert not [rule["alert"] for rule in alert_rules() if f'alertname="{rule["alert"]}"' not in tested]


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in alert_rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_what_the_compose_file_mounts_is_there_and_every_node_is_scraped() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    mounted = [
        ROOT / volume.split(":")[0]
        for name in ("prometheus", "grafana")
        for volume in services[name]["volumes"]
        if volume.startswith("./")
    ]
    assert mounted
    assert not [str(path) for path in mounted if not path.exists()]
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (targets,) = (each["targets"] for each in config["scrape_configs"][0]["static_configs"])
    nodes = {name: service for name, service in services.items() if name.startswith("kafka-")}
    ports = {name: str(service["environment"]["KAFKA_VARVE_METRICS_PORT"]) for name, service in nodes.items()}
    assert sorted(targets) == sorted(f"{name}:{port}" for name, port in ports.items())
    for service in nodes.values():
        assert service["environment"]["KAFKA_VARVE_METRICS_HOST"] == "0.0.0.0"
        # HOST:PORT:INSIDE; PORT may be a variable with a default, which has colons of its own.
        published = [(port.split(":")[0], port.rpartition(":")[2]) for port in service["ports"]]
        assert all(host == "127.0.0.1" and inside != "9094" for host, inside in published)


def test_prometheus_of_varve_cluster_up_asks_its_ports() -> None:
    from broker.cli.local_cluster import DEFAULT_PORTS, metrics_ports_of

    config = yaml.safe_load((FOLDER / "prometheus-local.yml").read_text(encoding="utf-8"))
    (targets,) = (each["targets"] for each in config["scrape_configs"][0]["static_configs"])
    assert targets == [f"localhost:{port}" for port in metrics_ports_of(DEFAULT_PORTS[:3])]
    assert Path(FOLDER / config["rule_files"][0]).exists()
