"""`--bootstrap-server`: the brokers that a command connects to, and whether anybody is there.

A client library tries until its timeout when nobody listens. That is right for a service, and a long silence for a
person at a terminal. So commands look first: a refused connection or an unknown name is reported at once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import click

from broker.cli.local_cluster import DEFAULT_BASE_DIR, DEFAULT_PORTS, LocalCluster, LocalClusterError
from broker.cli.root import CommandError

F = TypeVar("F", bound=Callable[..., Any])

#: As in librdkafka and Kafka's own defaults.
DEFAULT_PORT = 9092
#: How long a broker may take to accept a connection. It is long enough for one lost packet on a bad line. Nobody
#: waits for it on a machine that is there: that one accepts or refuses at once.
CONNECT_TIMEOUT_S = 3.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """`HOST[:PORT],...`, with an IPv6 address in brackets. Raises ValueError."""
    return [_parse_address(part.strip()) for part in text.split(",")]


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not HOST:PORT; an IPv6 address stands in brackets")
    if not host or any(char.isspace() or char == "/" for char in host):
        raise ValueError(f"{text!r} is not HOST:PORT")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    return Address(host, int(port))


def default_bootstrap_server() -> str:
    """The cluster of this working directory, otherwise the default ports on this machine."""
    try:
        local = LocalCluster.load(DEFAULT_BASE_DIR)
    except LocalClusterError as error:
        raise CommandError(str(error)) from None
    return local.bootstrap_server if local else ",".join(f"localhost:{port}" for port in DEFAULT_PORTS[:3])


def _checked(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        return ",".join(map(str, parse_addresses(value)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        envvar="VARVE_BOOTSTRAP_SERVERS",
        callback=_checked,
        default=default_bootstrap_server,
        help="Brokers to connect to.  [default: $VARVE_BOOTSTRAP_SERVERS, else the cluster in ./.varve, else "
        "localhost:19092,29092,39092]",
    )(command)


def find_broker(bootstrap_server: str) -> Address:
    """The first broker of the list to accept a connection. Raises CommandError if none does: at once if all refuse."""
    addresses = parse_addresses(bootstrap_server)
    answers: SimpleQueue[tuple[Address, str | None]] = SimpleQueue()
    for address in addresses:
        # A name that nobody resolves keeps its thread. Such threads do not keep the command.
        threading.Thread(target=_try_to_connect, args=(address, answers), daemon=True).start()
    deadline = monotonic() + CONNECT_TIMEOUT_S
    problems = dict.fromkeys(addresses, "no answer")
    for _ in addresses:
        try:
            address, problem = answers.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            break
        if problem is None:
            return address
        problems[address] = problem
    raise nobody_answers(bootstrap_server, ", ".join(dict.fromkeys(problems.values())))


def _try_to_connect(address: Address, answers: SimpleQueue[tuple[Address, str | None]]) -> None:
    try:
        socket.create_connection(address, CONNECT_TIMEOUT_S).close()
    except (socket.gaierror, UnicodeError):
        answers.put((address, f"the host name {address.host} is unknown"))
    except TimeoutError:
        answers.put((address, "no answer"))
    except OSError as error:
        answers.put((address, (error.strerror or str(error)).lower()))
    else:
        answers.put((address, None))


def nobody_answers(bootstrap_server: str, why: str = "") -> CommandError:
    """One line that says what to do."""
    text = f"no broker answers at {bootstrap_server}" + (f" ({why})" if why else "")
    if all(address.host in _LOOPBACK for address in parse_addresses(bootstrap_server)):
        text += "; `varve cluster up` starts a cluster on this machine"
    return CommandError(text)
