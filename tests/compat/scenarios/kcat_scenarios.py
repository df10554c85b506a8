"""kcat, as a distribution packages it: an older librdkafka than the one in confluent-kafka."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

RECORDS = 300


def kcat(bootstrap: str, *arguments: str, stdin: str = "", must_work: bool = True) -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == must_work, done.stderr
    return done.stdout if must_work else done.stderr


def consume(bootstrap: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    out = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J", *arguments)
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"k{number}:value {number} {'again ' * 10}" for number in range(RECORDS)]
    kcat(
        bootstrap,
        "-P",
        "-t",
        topic,
        "-p",
        "0",
        "-K:",
        "-z",
        codec,
        "-H",
        "h=1",
        stdin="\n".join(lines) + "\n",
    )
    found = consume(bootstrap, topic)
    assert [record["offset"] for record in found] == list(range(RECORDS))
    assert [f"{record['key']}:{record['payload']}" for record in found] == lines
    assert {tuple(record["headers"]) for record in found} == {("h", "1")}


def test_offsets_and_times(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    assert [record["payload"] for record in consume(bootstrap, topic, "-o", "-3")] == ["7", "8", "9"]
    assert len(consume(bootstrap, topic, "-o", "s@1")) == 10
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:1").strip().endswith("offset 0")


def test_metadata(bootstrap: str, topic: str) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert len(listed["brokers"]) == 3
    assert [len(part["replicas"]) for part in listed["topics"][0]["partitions"]] == [3] * 4


def test_group(bootstrap: str, topic: str, group: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, stdin="".join(f"{number}\n" for number in range(RECORDS)))
    earliest = ["-X", "auto.offset.reset=earliest"]
    first = kcat(bootstrap, "-G", group, *earliest, "-q", "-c", str(RECORDS), topic)
    assert sorted(first.split(), key=int) == [str(number) for number in range(RECORDS)]
    kcat(bootstrap, "-P", "-t", topic, stdin="after\n")
    assert kcat(bootstrap, "-G", group, *earliest, "-q", "-c", "1", topic).split() == ["after"]


def test_a_topic_that_is_not_there(bootstrap: str, name: str) -> None:
    assert "Unknown" in kcat(bootstrap, "-C", "-t", name, "-p", "0", "-e", must_work=False)
