"""A network of our own: a namespace for each node, joined by a bridge, and packets that vanish on demand.

All of it lives in namespaces that end with this process (`enter` replaces it by one inside them): nothing can be left
behind. Addresses are 10.213.0.N for node N and 10.213.0.254 for the clients.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

#: Stands for all clients where a node is meant.
CLIENTS = 254
_INSIDE = "VARVE_NEMESIS_INSIDE"
_TOOLS = ("unshare", "nsenter", "ip", "iptables")


class NoNamespacesError(Exception):
    """This machine does not let us have namespaces of our own; the text says why."""


def is_inside() -> bool:
    """Whether this process has namespaces of its own."""
    return _INSIDE in os.environ


def enter(arguments: list[str]) -> None:
    """Replace this process by Python with these arguments inside namespaces of its own (network, mounts, processes).

    Raises NoNamespacesError where that cannot be done. Without root, a user namespace is tried.
    """
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoNamespacesError(f"{', '.join(missing)} not found")
    options = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        options.append("--map-root-user")
    # What is needed later is tried now, while there is still another way.
    trial = "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add trial && iptables -w -L -n"
    tried = subprocess.run(
        ["unshare", *options, "sh", "-c", trial], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        raise NoNamespacesError((tried.stderr.strip().splitlines() or ["refused"])[-1])
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", ["unshare", *options, sys.executable, *arguments])


class Network:
    """Namespaces n1 to nN. Needs `is_inside`."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._node_ids = tuple(node_ids)
        # A file system of our own: the names of the namespaces stay unknown outside, and vanish with us. All of /run,
        # because iptables keeps its lock there, and without root we may not write to the machine's.
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        Path("/run/netns").mkdir()
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge", "type", "bridge")
        _run("ip", "addr", "add", f"{self.address(CLIENTS)}/24", "dev", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        for node_id in self._node_ids:
            name = f"n{node_id}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"veth{node_id}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"veth{node_id}", "master", "bridge", "up")
            _run("ip", "-n", name, "addr", "add", f"{self.address(node_id)}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def address(node_id: int) -> str:
        return f"10.213.0.{node_id}"

    def command(self, node_id: int) -> list[str]:
        """What makes a command run as this node: it is replaced by what follows it and keeps its process id."""
        return ["nsenter", f"--net=/run/netns/n{node_id}", "--"]

    def cut(self, sender: int, receiver: int) -> None:
        """Packets of this direction vanish on arrival. Either may be CLIENTS, but not both."""
        if receiver == CLIENTS:
            rule = ["OUTPUT", "-d", self.address(CLIENTS)]
            place = sender
        else:
            rule = ["INPUT", "-s", self.address(sender)]
            place = receiver
        _run(*self.command(place), "iptables", "-w", "-A", *rule, "-j", "DROP")

    def heal(self) -> None:
        for node_id in self._node_ids:
            _run(*self.command(node_id), "iptables", "-w", "-F")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
