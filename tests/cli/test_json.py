"""What docs/json.md says of `--format json` is what the commands print."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.conftest import ROOT, Varve

#: Command -> its arguments, in an order in which each has something to show, but for those named below.
ARGUMENTS: dict[str, list[str]] = {
    "topic create": ["t", "u", "-c", "cleanup.policy=compact"],
    "topic list": [],
    "topic describe": ["t"],
    "topic offsets": ["t"],
    "topic compact": ["t", "--wait"],
    "explain": ["t"],
    "explain --key": ["k", "t"],
    "verify replicas": ["t"],
    "config describe": ["--topic", "t"],
    "group list": [],
    "group describe": ["g"],
    "group reset-offsets": ["g", "--all-topics", "--to-earliest"],
    "group seek": ["g", "--to", "start"],
    "txn list": [],
    "txn describe": ["x"],
    "txn producers": ["v", "0"],
    "txn find-hanging": [],
    "broker list": [],
    "cluster info": [],
    "cluster status": [],
    "cluster quorum": [],
    "cluster features": [],
    "cluster elect-leaders": [],
    "health": [],
    "topic purge": ["v", "--before-offset", "0"],
    "group delete": ["g", "--yes"],
    "topic delete": ["u", "--yes"],
    "cluster up": [],
}
MAY_BE_EMPTY = {"txn find-hanging", "cluster elect-leaders"}


def documented() -> dict[str, tuple[str, set[str], set[str]]]:
    """Command -> the name of its list, the keys of its elements, the keys beside it."""
    text = (ROOT / "docs" / "json.md").read_text()
    rows = re.findall(r"^\| `varve ([^`]+)` \| (\w+) \| ([\w, ]+) \| ([\w, ]*) ?\|$", text, re.MULTILINE)
    return {
        command: (name, set(keys.split(", ")), set(filter(None, beside.strip().split(", "))))
        for command, name, keys, beside in rows
    }


def test_every_command_prints_what_is_documented(varve: Varve, node: str) -> None:
    wanted = documented()
    assert wanted.keys() == ARGUMENTS.keys()
    seen = {}
    for command, arguments in ARGUMENTS.items():
        if command == "topic list":
            fill(varve, node)
        done = varve(*command.split(), *arguments, "--format", "json")
        assert done.returncode == 0, (command, done.stderr)
        seen[command] = answer = json.loads(done.stdout)
        name, keys, beside = wanted[command]
        assert answer.keys() == {name, *beside}, command
        assert isinstance(answer[name], list) and (answer[name] or command in MAY_BE_EMPTY), command
        assert all(row.keys() == keys for row in answer[name]), (command, answer[name])
    seen["cluster health"] = json.loads(varve("cluster", "health", "--format", "json").stdout)
    for answer in seen.values():
        check_case(answer)


def check_case(document: Any) -> None:
    """Every key of ours, however deep. The names of settings and of topics are not ours."""
    if isinstance(document, list):
        for each in document:
            check_case(each)
    elif isinstance(document, dict):
        for key, value in document.items():
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", key), key
            if key not in ("configs", "assignment"):
                check_case(value)


def fill(varve: Varve, node: str) -> None:
    varve("produce", "t", "-K", ":", stdin="k:1\nk:2\n")
    varve("consume", "t", "-g", "g", "--from-beginning", "-e")
    varve("topic", "create", "v")
    producer = Producer({"bootstrap.servers": node, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("v", b"x")
    producer.commit_transaction(30)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_turned_on(varve: Varve, shell: str) -> None:
    printed = varve("completion", shell).stdout
    assert "_VARVE_COMPLETE" in printed and "varve" in printed


def test_topics_and_groups_are_completed(varve: Varve, node: str) -> None:
    def completed(line: str) -> set[str]:
        """As bash asks: the words, and the number of the one that is completed."""
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - (not line.endswith(" ")))}
        done = varve(_VARVE_COMPLETE="bash_complete", **words)
        assert done.stderr == ""
        return {row.partition(",")[2] for row in done.stdout.splitlines() if row}

    varve("topic", "create", "orders", "other")
    varve("produce", "orders", stdin="x\n")
    varve("consume", "orders", "-g", "readers", "--from-beginning", "-e")
    assert completed("varve topic describe o") == {"orders", "other"}
    assert completed("varve consume or") == {"orders"}
    assert completed("varve group describe ") == {"readers"}
    assert completed("varve consume orders -g ") == {"readers"}
    assert {"topic", "txn"} <= completed("varve t")
    varve("cluster", "down")
    assert completed("varve topic describe o") == set(), "nor is anything said, which would land in the line"
