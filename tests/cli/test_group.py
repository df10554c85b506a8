"""`varve group` and `varve consume --group` with real nodes and real members."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer

from tests.cli.conftest import Varve


def rows(text: str) -> list[list[str]]:
    """The cells of a printed table, without its head. Spaces inside cells do not matter here."""
    return [line.split() for line in text.splitlines()[1:]]


@contextmanager
def member(cluster: dict[str, Any], group: str, topic: str, **settings: str) -> Iterator[str]:
    """A consumer that has its partitions. Yields its member id."""
    bootstrap = cluster["bootstrap_server"]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        yield consumer.memberid()
    finally:
        consumer.close()


def test_a_consumer_group_continues_behind_what_was_printed(varve: Varve, cluster: dict[str, Any]) -> None:
    assert varve("topic", "create", "t", "--partitions", "2").returncode == 0
    varve("produce", "t", "-K", ":", stdin="".join(f"{n}:{n}\n" for n in range(20)))
    first = varve("consume", "t", "--group", "g", "--from-beginning", "-n", "5")
    rest = varve("consume", "t", "--group", "g", "--from-beginning", "-e")
    assert len(first.stdout.splitlines()) == 5, first.stderr
    printed = [*first.stdout.splitlines(), *rest.stdout.splitlines()]
    assert sorted(map(int, printed)) == list(range(20)), "each once"
    assert varve("consume", "t", "-g", "g", "-e").stdout == ""

    assert varve("group", "list").stdout == "g\n"
    assert varve("topic", "list").stdout == "__consumer_offsets\nt\n"
    assert varve("topic", "list", "--exclude-internal").stdout == "t\n"
    described = varve("group", "describe", "g")
    assert described.stderr == "Consumer group 'g' has no active members.\n"
    head = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert described.stdout.splitlines()[0].split() == head.split()
    lines = rows(described.stdout)
    assert [line[:3] + line[5:] for line in lines] == [["g", "t", p, "0", "-", "-", "-"] for p in "01"]
    assert sum(int(line[3]) for line in lines) == 20

    planned = varve("group", "reset-offsets", "g", "--topic", "t:1", "--to-earliest")
    assert rows(planned.stdout) == [["g", "t", "1", "0"]]
    assert varve("consume", "t", "-g", "g", "-e").stdout == "", "a dry run changes nothing"
    done = varve(
        "group", "reset-offsets", "g", "--all-topics", "--shift-by", "-3", "--execute", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    assert [(row["topic"], row["partition"]) for row in json.loads(done.stdout)["partitions"]] == [
        ("t", 0),
        ("t", 1),
    ]
    assert len(varve("consume", "t", "-g", "g", "-e").stdout.splitlines()) == 6

    assert varve("group", "delete", "g", "--yes").stdout == (
        "Deletion of requested consumer groups ('g') was successful.\n"
    )
    assert varve("group", "list").stdout == ""
    missing = varve("group", "describe", "g")
    assert (missing.returncode, missing.stderr) == (1, "varve: Consumer group 'g' does not exist\n")
    assert varve("group", "delete", "g", "--yes").returncode == 1


def test_members_and_states_are_shown_and_groups_with_members_are_protected(
    varve: Varve, cluster: dict[str, Any]
) -> None:
    assert varve("topic", "create", "t", "--partitions", "3").returncode == 0
    with (
        member(cluster, "classic", "t", **{"group.instance.id": "one"}) as classic,
        member(cluster, "modern", "t", **{"group.protocol": "consumer"}) as modern,
    ):
        shown = varve("group", "describe", "classic", "modern", "--members", "--verbose")
        assert rows(shown.stdout)[0] == ["classic", classic, "/127.0.0.1", "reader", "3", "t:0,1,2"]
        assert ["modern", modern, "/127.0.0.1", "reader", "3", "t:0,1,2"] in rows(shown.stdout)

        offsets = rows(varve("group", "describe", "classic").stdout)
        assert offsets == [["classic", "t", p, "-", "0", "-", classic, "/127.0.0.1", "reader"] for p in "012"]
        states = rows(varve("group", "list", "--state", "--type").stdout)
        assert states == [["classic", "Classic", "Stable"], ["modern", "Consumer", "Stable"]]
        assert rows(varve("group", "list", "--state", "empty").stdout) == []
        (state,) = json.loads(varve("group", "describe", "classic", "--format", "json").stdout)["groups"]
        assert (state["state"], state["type"], state["assignment_strategy"]) == ("Stable", "Classic", "range")
        assert state["members"][0]["group_instance_id"] == "one"
        assert state["coordinator"]["port"] in [
            int(node["address"].rpartition(":")[2]) for node in cluster["nodes"]
        ]

        for command in (
            ("reset-offsets", "classic", "--topic", "t", "--to-latest", "--execute"),
            ("delete", "--all-groups", "--yes"),
        ):
            refused = varve("group", *command)
            assert refused.returncode == 1 and "'classic'" in refused.stderr, refused
