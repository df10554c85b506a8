"""One line per cause and minute, and no count is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from broker.log_limit import EACH_S, MAX_CAUSES, LimitedLines, LineLimit, Repeated, kind_of
from tests.integration.harness import eventually
from tests.ports import free_ports

FLOOD = 5000


def _told(repeated: list[Repeated]) -> list[tuple[str, int]]:
    return [(each.event, each.count) for each in repeated]


def _admit(limit: LineLimit, cause: object, now: float, **details: object) -> bool:
    return limit.admit("refused", "warning", cause, details, now)


def test_the_first_line_of_a_minute_is_written_and_the_others_are_counted() -> None:
    limit = LineLimit()
    assert [_admit(limit, "a", number / 1000) for number in range(FLOOD)] == [True] + [False] * (FLOOD - 1)
    assert _told(limit.take_due(EACH_S - 1)) == []
    assert _told(limit.take_due(EACH_S)) == [("refused", FLOOD - 1)]


def test_what_goes_on_has_one_line_per_minute_and_what_has_ended_begins_anew() -> None:
    limit = LineLimit()
    written = told = 0
    for second in range(10 * int(EACH_S)):
        told += sum(count for _, count in _told(limit.take_due(second)))
        written += _admit(limit, "a", second)
    assert written == 1
    assert _told(limit.take_due(10 * EACH_S)) == [("refused", int(EACH_S))]
    assert written + told + EACH_S == 10 * EACH_S, "each line is written or counted once"
    assert _told(limit.take_due(11 * EACH_S)) == [], "nothing has come since"
    assert _admit(limit, "a", 11 * EACH_S + 1)


def test_causes_do_not_hide_one_another() -> None:
    limit = LineLimit()
    assert _admit(limit, "a", 0) and _admit(limit, "b", 0)
    assert limit.admit("closed", "warning", "a", {}, 0)


def test_reasons_that_differ_in_a_number_are_one_cause() -> None:
    assert kind_of("unknown api key 17") == kind_of("unknown api key 2300")
    assert kind_of("unknown api key 17") != kind_of("frame of 17 bytes")


def test_many_causes_take_bounded_memory_and_few_lines() -> None:
    limit = LineLimit()
    written = sum(_admit(limit, number, 0) for number in range(FLOOD))
    assert written == MAX_CAUSES + 1
    assert sum(count for _, count in _told(limit.take_due(EACH_S))) == FLOOD - written


def test_a_line_that_stands_for_several_is_counted_as_so_many() -> None:
    limit = LineLimit()
    assert _admit(limit, "a", 0, count=3)
    assert not _admit(limit, "a", 1, count=4) and not _admit(limit, "a", 2)
    assert _told(limit.take_due(EACH_S)) == [("refused", 5)]


def test_the_line_of_the_count_has_the_level_and_the_details_of_the_last_one() -> None:
    now = 0.0
    lines = LimitedLines(lambda: now)
    assert lines(None, "error", {"event": "refused", "cause": "a", "peer": 1}) == {
        "event": "refused",
        "peer": 1,
    }
    for peer in (2, 3):
        with pytest.raises(structlog.DropEvent):
            lines(None, "error", {"event": "refused", "cause": "a", "peer": peer})
    assert lines(None, "error", {"event": "other", "peer": 1}) == {"event": "other", "peer": 1}
    with structlog.testing.capture_logs() as logged:
        lines.write_due()
        lines.write_due(is_end=True)
    assert logged == [{"event": "refused (again)", "log_level": "error", "peer": 3, "count": 2}]


def test_lines_of_pythons_own_logging_are_limited_as_well() -> None:
    code = (
        "import logging; from broker.log_lines import write_log_lines; limited = write_log_lines()\n"
        "for number in range(1000): logging.getLogger('a.part').warning('expression %r is wrong', number)\n"
        "limited.write_due(is_end=True)"
    )
    finished = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, last = finished.stdout.splitlines()
    assert "expression 0 is wrong" in first
    assert "expression 999 is wrong" in last and "count=999" in last
    assert finished.stderr == ""


def test_a_client_that_sends_garbage_writes_two_lines_into_the_log_of_a_node(tmp_path: Path) -> None:
    """54,000 lines in 80 s were seen. The count is written when the node ends, at the latest."""
    (port,) = free_ports(1)
    log = tmp_path / "log"
    with log.open("wb") as file:
        node = subprocess.Popen(
            [
                *(sys.executable, "-m", "broker.cli", "start", "--log-dirs", str(tmp_path / "data")),
                *("--listeners", f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}"),
                *("--controller-quorum-voters", f"1@127.0.0.1:{port + 1}"),
            ],
            stdout=file,
        )
    try:
        eventually(lambda: "started" in log.read_text(), "the node serves")
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                client.recv(1)
    finally:
        node.terminate()
        assert node.wait(60) == 0
    bad = [line for line in log.read_text().splitlines() if "bad request" in line]
    assert len(bad) == 2
    assert "count=49" in bad[1]
