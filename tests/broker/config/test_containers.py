"""The environment that the image and docker-compose.yml give to a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.config.node_config import NodeConfig
from broker.config.sources import load
from broker.config.values import Address, is_loopback
from broker.security.cluster_secret import refusal_to_listen
from broker.security.secret_file import load_secret

ROOT = Path(__file__).parents[3]


def _image_environment() -> dict[str, str]:
    (instruction,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return dict(word.partition("=")[::2] for word in instruction.replace("\\\n", " ").split())


def _compose(variables: Mapping[str, str]) -> Any:
    """docker-compose.yml as Compose reads it with these variables."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[2])

    text = re.sub(r"\$\{(\w+):-(\w*)\}", value, (ROOT / "docker-compose.yml").read_text())
    assert "$" not in text
    return yaml.safe_load(text)


def test_the_image_is_a_cluster_of_one_that_the_host_reaches() -> None:
    """Docker forwards a published port to the container's address, where `localhost` does not listen."""
    config = load(environ=_image_environment()).config
    (listener,) = config.client_listeners
    assert (listener.host, listener.port) == ("0.0.0.0", 9092)
    assert config.advertised_address(listener) == Address("localhost", 9092)
    peers = config.controller_endpoint
    assert is_loopback(peers.host)
    assert refusal_to_listen(load_secret(None, None), peers.host, peers.name) is None, (
        "no secret is asked for"
    )


@pytest.mark.parametrize(
    "variables", [{}, {"VARVE_PORT_1": "9192", "VARVE_PORT_2": "9292", "VARVE_PORT_3": "9392"}]
)
def test_the_nodes_of_compose_tell_clients_the_ports_that_the_host_has(variables: dict[str, str]) -> None:
    services = _compose(variables)["services"]
    for number, default in ((1, 19092), (2, 29092), (3, 39092)):
        service = services[f"kafka-{number}"]
        environment = {key: str(value) for key, value in service["environment"].items()}
        config: NodeConfig = load(environ=_image_environment() | environment).config
        external = next(each for each in config.client_listeners if each.name == "EXTERNAL")
        published = variables.get(f"VARVE_PORT_{number}", str(default))
        assert config.advertised_address(external) == Address("localhost", int(published))
        assert service["ports"] == [f"127.0.0.1:{published}:{external.port}"]
