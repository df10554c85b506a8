"""`varve produce` and `varve consume` with a real node: what goes in comes out in every form; mistakes are named."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.cli.record_json import Headers
from tests.cli.conftest import Varve, start

#: Keys, values and headers that a line of text cannot hold.
ODD: list[tuple[bytes | None, bytes | None, Headers]] = [
    (None, b"plain", []),
    (b"", b"", [("empty", b""), ("null", None)]),
    (b"\xff\x00", b"\xfe\nline\r\n", [("bytes", b"\x80"), ("bytes", b"again")]),
    ("käse".encode(), None, []),
    (b"null", b"null", [("text", "ü".encode())]),
    (b'{"base64": "AA=="}', b"\t\\", []),
]


def write(node: str, topic: str, records: list[tuple[bytes | None, bytes | None, Headers]]) -> None:
    producer = Producer({"bootstrap.servers": node, "acks": "all"})
    for number, (key, value, headers) in enumerate(records):
        producer.produce(
            topic, value, key, partition=0, headers=[*headers], timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(30) == 0


def read(node: str, topic: str, count: int) -> list[tuple[object, ...]]:
    consumer = Consumer({"bootstrap.servers": node, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, 30)
        return [(x.key(), x.value(), x.headers() or [], x.timestamp()) for x in found]
    finally:
        consumer.close()


def test_what_is_read_as_json_is_written_back_without_loss(varve: Varve, node: str) -> None:
    assert varve("topic", "create", "odd", "copy", "--partitions", "1").stdout == (
        "Created topic odd.\nCreated topic copy.\n"
    )
    write(node, "odd", ODD)
    lines = varve("consume", "odd", "--from-beginning", "-e", "--format", "json").stdout
    assert json.loads(lines.splitlines()[2])["value"] == {"base64": "/gpsaW5lDQo="}
    written = varve("produce", "copy", "--input-format", "json", "--format", "json", stdin=lines)
    assert written.returncode == 0, written.stderr
    assert [json.loads(line)["offset"] for line in written.stdout.splitlines()] == list(range(len(ODD)))
    copied = read(node, "copy", len(ODD))
    assert copied == read(node, "odd", len(ODD))
    assert [(key, value, headers) for key, value, headers, _ in copied] == ODD


def test_a_bad_line_is_named_with_what_was_written_before_it(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    for options, lines, why in (
        (["-K", ":"], "a:1\nb:2\nno separator\nc:3\n", "line 3: there is no ':' in it"),
        (
            ["--input-format", "json"],
            '{"value":"1"}\n{"value":"2"}\n{"value":3}\n',
            "line 3: value is neither text",
        ),
        (["--input-format", "json"], '{"value":"1"}\n{}\n{"valu":"x"}\n', "line 3: 'valu' is not a field"),
        (["--input-format", "json"], '{"key":"1"}\n{}\n[]\n', "line 3: it is not a JSON object"),
        (["--input-format", "json"], '{}\n{}\n{"key":{"base64":"!"}}\n', "line 3: key is not base64"),
        (["--input-format", "json"], '{}\n{}\n{"timestamp":"x"}\n', "line 3: timestamp is not a number"),
        (["--input-format", "json"], '{}\n{}\n{"headers":{}}\n', "line 3: headers are not a list of pairs"),
        (["--input-format", "json"], "{}\n{}\nnonsense\n", "line 3: it is not JSON"),
    ):
        refused = varve("produce", "t", *options, stdin=lines)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"varve: {why}"), refused.stderr
        assert refused.stderr.endswith("; 2 records before it acknowledged, nothing after it sent\n")
    assert varve("topic", "offsets", "t").stdout == "t:0:16\n"


def test_a_line_that_is_too_large_is_named(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    refused = varve("produce", "t", stdin="small\n" + "x" * 2_000_000 + "\nsmall\n")
    assert refused.returncode == 1
    assert refused.stderr.startswith("varve: line 2: ") and "MSG_SIZE_TOO_LARGE" in refused.stderr
    assert "1 record was not acknowledged" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert varve("topic", "alter", "t", "--config", "max.message.bytes=3000000").returncode == 0
    assert varve("produce", "t", stdin="x" * 2_000_000).stderr == "1 record acknowledged\n"


def test_a_partition_that_is_not_there_is_refused(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    refused = varve("produce", "t", "--partition", "7", stdin="x\n")
    assert refused.returncode == 1 and "line 1: " in refused.stderr and "artition" in refused.stderr


def test_separators_are_typed_with_a_backslash(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    assert varve("produce", "t", "-K", r"\t", stdin="a\t1\nb\t2\n").returncode == 0
    shown = varve("consume", "t", "--from-beginning", "-e", "-K", r"\x3d\t")
    assert sorted(shown.stdout.splitlines()) == ["a=\t1", "b=\t2"]
    refused = varve("consume", "t", "-K", r"\q")
    assert refused.returncode == 2 and r"\q stands for nothing" in refused.stderr


def test_a_format_shows_what_it_names(varve: Varve, node: str) -> None:
    varve("topic", "create", "t", "-p", "1", "-r", "1", "-c", "retention.ms=-1")
    write(node, "t", [(b"k", b"v", [("a", b"1"), ("b", None)]), (None, None, [])])
    shown = varve(
        "consume", "--topic", "t", "-o", "start", "-e", "-f", r"%t|%p|%o|%k|%v|%s|%K|%V|%h|%T|%d|%%\n"
    )
    assert shown.stdout.splitlines() == [
        "t|0|0|k|v|v|1|1|a=1,b=NULL|1700000000000|1700000000000|%",
        "t|0|1||||-1|-1||1700000000001|1700000000001|%",
    ]
    for wrong in ("%q", "no field", "%"):
        assert varve("consume", "t", "-f", wrong).returncode == 2


def test_reading_begins_at_a_time(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    write(node, "t", [(None, b"%d" % number, []) for number in range(5)])
    for time in ("1700000000003", "2023-11-14T22:13:20.003", "2023-11-14T22:13:20.003+00:00"):
        assert varve("consume", "t", "-o", f"@{time}", "-e").stdout == "3\n4\n"
    assert varve("consume", "t", "-o", "@2030-01-01", "-e").stdout == ""
    assert varve("consume", "t", "-o", "@noon").returncode == 2


def test_several_topics_and_those_of_a_pattern_are_read(varve: Varve, node: str) -> None:
    varve("topic", "create", "orders-a", "orders-b", "other", "-c", "retention.ms=-1")
    for name in ("orders-a", "orders-b", "other"):
        varve("produce", name, stdin=f"{name}\n")
    both = varve("consume", "orders-a", "other", "--from-beginning", "-e").stdout
    assert sorted(both.splitlines()) == ["orders-a", "other"]
    for pattern, found in (
        ("^orders", ["orders-a", "orders-b"]),
        ("[ab]$|other", ["orders-a", "orders-b", "other"]),
    ):
        plain = varve("consume", "-r", pattern, "--from-beginning", "-e").stdout
        assert sorted(plain.splitlines()) == found
        grouped = varve("consume", "-r", pattern, "-g", pattern, "--from-beginning", "-n", str(len(found)))
        assert sorted(grouped.stdout.splitlines()) == found
    assert "no topic matches nothing" in varve("consume", "-r", "nothing").stderr
    assert varve("consume", "-r", "(").returncode == 2
    assert varve("consume").returncode == 2


def test_all_records_come_when_partitions_end_at_different_times(varve: Varve, node: str) -> None:
    varve("topic", "create", "t", "-p", "3")
    lines = "".join(f"{number}\n" for number in range(20_000))
    assert varve("produce", "t", "-p", "2", stdin=lines).stderr == "20,000 records acknowledged\n"
    shown = varve("consume", "t", "--from-beginning", "-e")
    assert shown.stdout == lines


def test_a_full_disk_and_a_closed_pipe_are_no_traceback(varve: Varve, node: str, tmp_path: Path) -> None:
    varve("topic", "create", "t")
    varve("produce", "t", stdin="x\n" * 1000)
    for command in (["consume", "t", "--from-beginning", "-e"], ["topic", "list"]):
        with open("/dev/full", "wb") as full:
            done = run(command, tmp_path, stdout=full)
        assert done == (1, b"varve: standard output cannot be written: No space left on device\n")
        reading, writing = os.pipe()
        os.close(reading)
        done = run(command, tmp_path, stdout=writing)
        os.close(writing)
        assert done == (1, b"")


def test_who_reads_no_more_ends_it(varve: Varve, node: str, tmp_path: Path) -> None:
    """Also if no record comes that could not be written."""
    varve("topic", "create", "t")
    varve("produce", "t", stdin="x\n")
    process = start(["consume", "t", "--from-beginning"], tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"x\n"
    process.stdout.close()
    assert process.wait(30) == 0


def run(command: list[str], folder: Path, **files: Any) -> tuple[int, bytes]:
    """Its exit code, and what it says on standard error."""
    process = start(command, folder, stderr=subprocess.PIPE, **files)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_ctrl_c_tells_how_much_was_written(varve: Varve, node: str, tmp_path: Path) -> None:
    varve("topic", "create", "t")
    process = start(
        ["produce", "t", "--format", "json"],
        tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"x\nx\n")
    process.stdin.flush()
    # They are shown while it waits for another line.
    assert [json.loads(process.stdout.readline())["offset"] for _ in range(2)] == [0, 1]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == b"\nvarve: interrupted: 2 records acknowledged, of 2 lines\n"


def test_progress_is_for_a_terminal(varve: Varve, node: str, tmp_path: Path) -> None:
    varve("topic", "create", "t")
    terminal, other_end = pty.openpty()
    process = start(["produce", "t"], tmp_path, stdin=subprocess.PIPE, stderr=other_end)
    os.close(other_end)
    assert process.stdin is not None
    said = b""
    try:
        while b"records acknowledged" not in said:
            process.stdin.write(b"x\n" * 20_000)
            said += _available(terminal)
        process.stdin.close()
        while not said.endswith(b" records acknowledged\r\n"):
            said += os.read(terminal, 4096)
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(terminal)
    assert b"\r\x1b[K" in said


def _available(fd: int) -> bytes:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""
    finally:
        os.set_blocking(fd, True)


@pytest.mark.parametrize(
    ("command", "deed"),
    [
        (["topic", "delete", "t", "u"], "Delete topic t and topic u with all records?"),
        (["topic", "purge", "t", "--all"], "Delete all records of topic t?"),
        (["group", "delete", "g"], "Delete group g with all offsets?"),
    ],
)
def test_what_deletes_for_good_asks_first(
    varve: Varve, node: str, tmp_path: Path, command: list[str], deed: str
) -> None:
    varve("topic", "create", "t", "u")
    varve("produce", "t", stdin="x\n")
    refused = varve(*command)
    assert refused.returncode == 2 and f"{deed} Nobody can be asked here: --yes" in refused.stderr
    terminal, other_end = pty.openpty()
    try:
        os.write(terminal, b"n\n")
        answered = run(command, tmp_path, stdin=other_end)
    finally:
        os.close(terminal)
        os.close(other_end)
    assert answered == (1, f"{deed} [y/N]: varve: nothing was deleted\n".encode())
    assert varve("topic", "offsets", "t").stdout == "t:0:1\n"


def test_the_outcome_of_each_topic_is_told(varve: Varve, node: str) -> None:
    varve("topic", "create", "a")
    partly = varve("topic", "create", "a", "b", "c/d")
    assert partly.returncode == 1
    assert partly.stdout == "Created topic b.\n"
    assert "topic a already exists" in partly.stderr and "topic name 'c/d' may contain only" in partly.stderr
    partly = varve("topic", "delete", "a", "x", "b", "--yes", "--format", "json")
    assert partly.returncode == 1
    assert json.loads(partly.stdout) == {
        "topics": [
            {"topic": "a", "deleted": True, "error": None},
            {"topic": "x", "deleted": False, "error": "Topic 'x' does not exist"},
            {"topic": "b", "deleted": True, "error": None},
        ]
    }


def test_a_group_is_set_to_another_place_at_once(varve: Varve, node: str) -> None:
    varve("topic", "create", "t")
    write(node, "t", [(None, b"%d" % number, []) for number in range(5)])
    varve("consume", "t", "-g", "g", "--from-beginning", "-e")
    for to, offset in (("start", 0), ("1700000000002", 2), ("2023-11-14T22:13:20.004", 4), ("end", 5)):
        sought = json.loads(varve("group", "seek", "g", "--to", to, "--format", "json").stdout)["partitions"]
        assert [(row["topic"], row["partition"], row["current_offset"]) for row in sought] == [
            ("t", 0, offset)
        ]
    assert sought[0]["prior_offset"] == 4
    text = varve("group", "seek", "g", "--to", "start", "--topics", "t:0").stdout.splitlines()
    assert [line.split() for line in text] == [
        ["TOPIC", "PARTITION", "PRIOR-OFFSET", "CURRENT-OFFSET"],
        ["t", "0", "5", "0"],
    ]
    assert varve("consume", "t", "-g", "g", "-n", "1").stdout == "0\n"
    assert varve("group", "seek", "g", "--to", "middle").returncode == 2
