"""No cluster, wrong addresses, Ctrl-C: every command ends soon, and says what to do."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.cli.bootstrap import CONNECT_TIMEOUT_S, Address, find_broker, parse_addresses
from broker.cli.root import CommandError
from tests.cli.conftest import PIPED, Varve, environment, start
from tests.ports import free_ports

COMMANDS = [
    ["topic", "create", "t"],
    ["topic", "list"],
    ["topic", "describe"],
    ["topic", "describe", "t", "--compaction"],
    ["topic", "alter", "t", "--config", "retention.ms=1"],
    ["topic", "add-partitions", "t", "--num", "1"],
    ["topic", "delete", "t", "--yes"],
    ["topic", "offsets", "t"],
    ["topic", "purge", "t", "--all", "--yes"],
    ["topic", "compact", "t"],
    ["explain", "t"],
    ["verify", "replicas", "t"],
    ["config", "describe", "--topic", "t"],
    ["config", "alter", "--broker", "1", "--add-config", "log.retention.ms=1"],
    ["group", "list"],
    ["group", "describe", "g"],
    ["group", "reset-offsets", "g", "--all-topics", "--to-earliest"],
    ["group", "seek", "g", "--to", "start"],
    ["group", "delete", "g", "--yes"],
    ["txn", "list"],
    ["txn", "describe", "x"],
    ["produce", "t"],
    ["consume", "t"],
    ["consume", "t", "--group", "g"],
    ["broker", "list"],
    ["broker", "decommission", "1"],
    ["cluster", "info"],
    ["cluster", "health"],
    ["cluster", "quorum"],
    ["cluster", "features"],
    ["cluster", "elect-leaders"],
    ["cluster", "reassign", "generate"],
    ["cluster", "reassign", "cancel", "--all"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_cluster_a_command_says_so_and_how_to_start_one(varve: Varve, command: list[str]) -> None:
    (port,) = free_ports(1)
    refused = varve(*command, "-b", f"localhost:{port}")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"varve: no broker answers at localhost:{port} (connection refused); "
        "`varve cluster up` starts a cluster on this machine\n"
    )


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:19092", [("::1", 19092)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses
    assert parse_addresses(",".join(map(str, parse_addresses(text)))) == addresses


@pytest.mark.parametrize(
    "text", ["", ":1", "a:", "a:b", "a:0", "a:65536", "a:1,", "::1", "a b:1", "http://a:1"]
)
def test_wrong_addresses_are_wrong_usage(varve: Varve, text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|port between"):
        parse_addresses(text)
    assert varve("topic", "list", "-b", text).returncode == 2


def test_a_variable_names_the_brokers(varve: Varve) -> None:
    (port,) = free_ports(1)
    refused = varve("topic", "list", VARVE_BOOTSTRAP_SERVERS=f"127.0.0.1:{port}")
    assert f"no broker answers at 127.0.0.1:{port}" in refused.stderr


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(CommandError, match=r"no broker answers at no-such-host\.invalid:1 \(.*is unknown\)$"):
        find_broker("no-such-host.invalid:1")


def test_the_broker_that_answers_is_found_beside_others_that_do_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, deaf() as silent:
        (closed,) = free_ports(1)
        port = server.getsockname()[1]
        found = find_broker(f"localhost:{closed},127.0.0.1:{silent},127.0.0.1:{port}")
    assert found == Address("127.0.0.1", port)


def test_who_does_not_answer_at_all_is_given_up() -> None:
    with deaf() as silent, pytest.raises(CommandError, match=r"\(no answer\)"):
        find_broker(f"127.0.0.1:{silent}")
    assert CONNECT_TIMEOUT_S < 5


@contextmanager
def deaf() -> Iterator[int]:
    """The port of a listener whose queue is full, so that the kernel answers nobody."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            waiting.append(client)
        try:
            yield server.getsockname()[1]
        finally:
            for client in waiting:
                client.close()


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["cluster", "health"], ["produce", "t"]], ids=" ".join
)
def test_ctrl_c_ends_a_command_within_a_call_of_the_client_library(
    command: list[str], tmp_path: Path
) -> None:
    """The listener accepts, and never answers: the library waits 15 s for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = start(
            [*command, "-b", f"127.0.0.1:{server.getsockname()[1]}"],
            tmp_path,
            stdin=subprocess.PIPE,
            **PIPED,
        )
        server.accept()[0].close()  # The look whether anybody is there.
        with server.accept()[0] as connection:
            assert connection.recv(1)
            began_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=10)
    assert time.monotonic() - began_s < 5
    assert b"Traceback" not in said and b"Aborted" not in said
    assert process.returncode in (-signal.SIGINT, 130)


def test_ctrl_c_in_the_first_moments_leaves_no_traceback(tmp_path: Path) -> None:
    """At every tenth of the time that the command takes, from the installed script on."""
    launcher = Path(__file__).parent.parent.parent / "broker" / "cli" / "launcher.py"
    for tenth in range(10):
        process = subprocess.Popen(
            [sys.executable, "-I", str(launcher), "topic", "--help"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        # Python's own start, before our first line, cannot be guarded. It has begun to run when it opens the script.
        while process.poll() is None and not _is_blocking_sigint(process.pid):
            pass
        time.sleep(0.03 * tenth)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert b"Traceback" not in said, (tenth, said)


def _is_blocking_sigint(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    blocked = next((line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), "0")
    return bool(int(blocked, 16) >> (signal.SIGINT - 1) & 1)


def test_ctrl_c_at_a_terminal_ends_health_quietly(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    terminal, other_end = pty.openpty()
    process = start(
        ["cluster", "health", "--watch", "-b", f"localhost:{port}"], tmp_path, stdin=other_end, **PIPED
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"CLUSTER HEALTH OVERVIEW\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    finally:
        os.close(terminal)
        os.close(other_end)
    assert said == b""


def test_consume_says_that_no_broker_answers_any_more(varve: Varve, node: str, tmp_path: Path) -> None:
    varve("topic", "create", "t")
    varve("produce", "t", stdin="first\n")
    process = start(["consume", "t", "--from-beginning"], tmp_path, **PIPED)
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        varve("cluster", "down")
        assert process.stderr.readline() == f"varve: no broker answers at {node}; still trying\n".encode()
        varve("cluster", "up")
        varve("produce", "t", stdin="second\n")
        assert process.stdout.readline() == b"second\n"
    finally:
        process.kill()
        process.communicate()
