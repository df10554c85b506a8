"""A client that is told `localhost` from another machine is noticed, and no other one is."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.config.node_config import NodeConfig
from broker.config.sources import load
from broker.main import default_gateway
from broker.network.listener_hint import ListenerHint
from tests.integration.harness import eventually
from tests.ports import free_ports

LISTENERS = "LAN://0.0.0.0:9092,CONTROLLER://localhost:9093"


def _config(advertised: str = "", gateway: str = "") -> NodeConfig:
    flags = {"listeners": LISTENERS, "listener.security.protocol.map": "LAN:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    if advertised:
        flags["advertised.listeners"] = advertised
    return replace(load(flags=flags).config, gateway=gateway)


def _lines(config: NodeConfig, peer_host: str, own_host: str = "192.0.2.7") -> list[tuple[str, str]]:
    with capture_logs() as logged:
        ListenerHint(config).connected("LAN", peer_host, own_host)
    return [(line["connected_to"], line["told"]) for line in logged]


def test_a_client_of_another_machine_that_is_told_localhost_is_noticed() -> None:
    assert _lines(_config(), "192.0.2.9") == [("192.0.2.7:9092", "localhost:9092")]
    assert _lines(_config("LAN://127.0.0.1:19092"), "192.0.2.9") == [("192.0.2.7:9092", "127.0.0.1:19092")]


@pytest.mark.parametrize(
    ("config", "peer_host"),
    [
        (_config("LAN://broker.example:9092"), "192.0.2.9"),
        (_config(), "127.0.0.1"),
        (_config(), "::1"),
        (_config(), "192.0.2.7"),
        (_config(gateway="192.0.2.1"), "192.0.2.1"),
    ],
    ids=["advertised", "loopback", "loopback of IPv6", "own address", "from the machine of the container"],
)
def test_a_client_that_can_connect_to_what_it_is_told_is_not(config: NodeConfig, peer_host: str) -> None:
    assert _lines(config, peer_host) == []


def test_the_default_gateway_is_that_of_the_kernel(tmp_path: Path) -> None:
    table = tmp_path / "route"
    address = struct.unpack("=I", socket.inet_aton("172.17.0.1"))[0]
    table.write_text(
        "Iface\tDestination\tGateway \tFlags\n"
        "eth1\t000011AC\t00000000\t0001\n"
        f"eth0\t00000000\t{address:08X}\t0003\n"
    )
    assert default_gateway(table) == "172.17.0.1"
    table.write_text("Iface\tDestination\tGateway \tFlags\n")
    assert default_gateway(table) == ""
    assert default_gateway(tmp_path / "missing") == ""


def _own_address() -> str:
    """An address of this machine that is not loopback, or "": where packets for elsewhere would come from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
        return address


@pytest.mark.skipif(not _own_address(), reason="the machine has no address but loopback")
def test_a_node_notices_it_at_work(tmp_path: Path) -> None:
    """The client binds another address of this machine than that to which it connects. The node cannot tell that from
    the address of another machine."""
    (port,) = free_ports(1)
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            [
                *(sys.executable, "-m", "broker.cli", "start", "--log-dirs", str(tmp_path / "data")),
                *("--listeners", f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{port + 1}"),
                *("--controller-quorum-voters", f"1@127.0.0.1:{port + 1}"),
            ],
            stdout=log,
        )
    try:
        text = (tmp_path / "log").read_text
        eventually(lambda: "started" in text(), "the node serves")
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), source_address=(_own_address(), 0)):
                pass
        eventually(lambda: "told an address of its own" in text(), "the line")
    finally:
        node.terminate()
        assert node.wait(60) == 0
    assert text().count("told an address of its own") == 2, "one line, and one with the count"
