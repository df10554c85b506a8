"""The checker of histories: each kind of violation is found and named, and what is legitimate is not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history import HistoryError, Kind, Verdict, check, parse

ROOT = Path(__file__).parents[2]
Op = dict[str, Any]
T = "t"


def judge(history: list[Op]) -> Verdict:
    return check(parse(op) for op in history)


def kinds(history: list[Op]) -> set[Kind]:
    return {finding.kind for finding in judge(history).findings}


def send(value: str, offset: int | None = None, outcome: str = "ok", at: int = 0, **more: Any) -> Op:
    return {
        "op": "send",
        "process": "p",
        "topic": T,
        "partition": 0,
        "key": None,
        "value": value,
        "outcome": outcome,
        "offset": offset,
        "begin_ns": at,
        **more,
    }


def poll(*records: tuple[int, str], process: str = "c", assignment: int = 1) -> Op:
    return {
        "op": "poll",
        "process": process,
        "assignment": assignment,
        "records": [[T, 0, offset, value] for offset, value in records],
    }


def read(start: int, end: int, *records: tuple[int, str]) -> Op:
    return {
        "op": "read",
        "topic": T,
        "partition": 0,
        "start_offset": start,
        "end_offset": end,
        "records": [list(record) for record in records],
    }


def assign(offset: int | None, assignment: int = 1) -> Op:
    return {"op": "assign", "process": "c", "assignment": assignment, "partitions": [[T, 0, offset]]}


ABC = [send("a", 0, at=1), send("b", 1, at=2), send("c", 2, at=3)]
ALL = read(0, 3, (0, "a"), (1, "b"), (2, "c"))


# -- planted violations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "kind", "proof"),
    [
        pytest.param(
            [*ABC, poll((0, "a")), poll((2, "c"), assignment=2)], Kind.LOST_WRITE, (1, 4), id="passed"
        ),
        pytest.param([*ABC, read(0, 3, (0, "a"), (1, "b"))], Kind.LOST_WRITE, (2, 3), id="lost at the end"),
        pytest.param([*ABC, read(0, 2, (0, "a"), (1, "b"))], Kind.UNSEEN_WRITE, (2,), id="unseen"),
        pytest.param([send("a", 0), read(0, 0)], Kind.UNSEEN_WRITE, (0,), id="an empty log"),
        pytest.param([*ABC, send("d"), ALL], Kind.UNSEEN_WRITE, (3,), id="acknowledged without a place"),
        pytest.param(
            [*ABC, send("x", 0, partition=1), ALL], Kind.UNSEEN_WRITE, (3,), id="partition that nobody reads"
        ),
        pytest.param(
            [*ABC, read(0, 4, (0, "a"), (1, "b"), (2, "c"), (3, "a"))],
            Kind.DUPLICATE,
            (3, 3),
            id="read twice",
        ),
        pytest.param(
            [send("a", 0, at=1), send("b", 1, at=2), poll((1, "b"), (2, "a"))],
            Kind.DUPLICATE,
            (2, 0),
            id="acknowledged and read elsewhere",
        ),
        pytest.param(
            [*ABC, send("d", outcome="failed"), ALL, poll((3, "d"))], Kind.ABORTED_READ, (3, 5), id="aborted"
        ),
        pytest.param([*ABC, ALL, poll((3, "?"))], Kind.PHANTOM_READ, (4,), id="sent by nobody"),
        pytest.param(
            [*ABC, ALL, send("x", outcome="unknown", partition=1), poll((3, "x"))],
            Kind.PHANTOM_READ,
            (4, 5),
            id="sent to another partition",
        ),
        pytest.param(
            [*ABC, ALL, send("x", outcome="unknown"), poll((1, "x"))],
            Kind.INCONSISTENT_OFFSET,
            (3, 5),
            id="two reads",
        ),
        pytest.param(
            [*ABC, ALL, send("x", 3, at=9), send("y", 3, at=10)],
            Kind.INCONSISTENT_OFFSET,
            (4, 5),
            id="two acknowledgements",
        ),
        pytest.param(
            [*ABC, send("x", outcome="unknown"), read(0, 3, (0, "a"), (1, "x"), (2, "c"))],
            Kind.INCONSISTENT_OFFSET,
            (1, 4),
            id="acknowledged and read",
        ),
        pytest.param(
            [*ABC, ALL, poll((1, "b"), (0, "a"))], Kind.NONMONOTONIC_POLL, (4,), id="back within a poll"
        ),
        pytest.param([*ABC, ALL, poll((1, "b"), (1, "b"))], Kind.NONMONOTONIC_POLL, (4,), id="again"),
        pytest.param(
            [*ABC, ALL, poll((1, "b")), poll((0, "a"))],
            Kind.NONMONOTONIC_POLL,
            (4, 5),
            id="back between polls",
        ),
        pytest.param(
            [*ABC, ALL, assign(2), poll((1, "b"))], Kind.NONMONOTONIC_POLL, (4, 5), id="before the start"
        ),
        pytest.param(
            [*ABC, read(0, 3, (1, "b"), (0, "a"), (2, "c"))],
            Kind.NONMONOTONIC_POLL,
            (3,),
            id="back within a read",
        ),
        pytest.param(
            [*ABC, ALL, poll((0, "a"), (2, "c"))], Kind.SKIPPING_POLL, (4,), id="skip within a poll"
        ),
        pytest.param(
            [*ABC, ALL, poll((0, "a")), poll((2, "c"))], Kind.SKIPPING_POLL, (4, 5), id="skip between polls"
        ),
        pytest.param(
            [*ABC, ALL, assign(0), poll((1, "b"))], Kind.SKIPPING_POLL, (4, 5), id="skip at the start"
        ),
        pytest.param(
            [
                *ABC,
                ALL,
                poll((0, "a")),
                {"op": "seek", "process": "c", "topic": T, "partition": 0, "offset": 1},
                poll((2, "c")),
            ],
            Kind.SKIPPING_POLL,
            (5, 6),
            id="skip after a seek",
        ),
        pytest.param(
            [*ABC, ALL, read(0, 4, (0, "a"), (1, "b"), (2, "c"))], Kind.SKIPPING_POLL, (4,), id="hole"
        ),
        pytest.param(
            [
                {"op": "topic", "topic": T, "gaps": True},
                *ABC,
                poll((0, "a"), (2, "c")),
                poll((1, "b"), process="other"),
            ],
            Kind.SKIPPING_POLL,
            (4, 5),
            id="a gap in which somebody else read something",
        ),
        pytest.param(
            [send("a", 1, at=1), send("b", 0, at=2), read(0, 2, (0, "b"), (1, "a"))],
            Kind.NONMONOTONIC_SEND,
            (0, 1),
            id="sent in another order",
        ),
    ],
)
def test_a_planted_violation_is_found_with_its_proof(
    history: list[Op], kind: Kind, proof: tuple[int, ...]
) -> None:
    found = [finding for finding in judge(history).findings if finding.kind == kind]
    assert [finding.proof for finding in found] == [proof]


# -- legitimate oddities -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*ABC, ALL], id="plain"),
        pytest.param([*ABC, {"op": "note", "what": "node 1 was killed"}, ALL], id="with a note"),
        pytest.param([ALL, *reversed(ABC)], id="files in any order"),
        pytest.param(
            [*ABC, send("d", outcome="unknown"), send("e", outcome="unknown", at=9), ALL, poll((3, "d"))],
            id="one unknown send appears, the other does not",
        ),
        pytest.param([*ABC, send("d", outcome="failed"), ALL], id="failed and not there"),
        pytest.param(
            [*ABC, send("d", partition=None, at=9), ALL, poll((3, "d"))], id="place never learnt, but read"
        ),
        pytest.param(
            [*ABC, ALL, poll((1, "b"), (2, "c")), poll((0, "a"), assignment=2)],
            id="a new assignment goes back",
        ),
        pytest.param(
            [
                *ABC,
                ALL,
                poll((2, "c")),
                {"op": "seek", "process": "c", "topic": T, "partition": 0, "offset": None},
                poll((0, "a"), (1, "b")),
            ],
            id="a seek goes back",
        ),
        pytest.param([*ABC, ALL, assign(None), poll((2, "c"))], id="a start that was not known"),
        pytest.param(
            [*ABC, ALL, send("d", 4, at=9, idempotent=False), poll((3, "d"), (4, "d"))],
            id="a plain producer's record is there twice",
        ),
        pytest.param(
            [
                *ABC,
                ALL,
                send("x", 4, at=9, idempotent=False),
                send("y", 3, at=10, idempotent=False),
                poll((3, "y"), (4, "x")),
            ],
            id="a plain producer's records in another order",
        ),
        pytest.param(
            [
                {"op": "topic", "topic": T, "gaps": True},
                send("a", 0, at=1),
                send("c", 2, at=3),
                poll((0, "a"), (2, "c")),
                read(0, 4, (0, "a"), (2, "c")),
            ],
            id="transaction markers",
        ),
        pytest.param(
            [{"op": "topic", "topic": T, "compacted": True}]
            + [send(value, offset, at=offset, key="k") for offset, value in enumerate("abc")]
            + [poll((0, "a"), (1, "b")), poll((2, "c"), process="other", assignment=1), read(0, 3, (2, "c"))],
            id="compaction",
        ),
    ],
)
def test_what_is_legitimate_passes(history: list[Op]) -> None:
    assert judge(history).findings == []


def test_what_compaction_may_not_remove_is_lost() -> None:
    history = [
        {"op": "topic", "topic": T, "compacted": True},
        send("a", 0, at=1, key="k"),
        send("b", 1, at=2, key="other"),
        send("c", 2, at=3, key="k"),
        read(0, 3, (2, "c")),
    ]
    assert [(finding.kind, finding.offset) for finding in judge(history).findings] == [(Kind.LOST_WRITE, 1)]


def test_copies_of_plain_producers_are_counted() -> None:
    history = [*ABC, ALL, send("d", 4, at=9, idempotent=False), poll((3, "d"), (4, "d"))]
    assert judge(history).repeated_by_plain_producers == 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="empty"),
        pytest.param([*ABC], id="nobody read"),
        pytest.param([*ABC, poll()], id="nobody was given anything"),
        pytest.param([send("a", outcome="unknown"), poll((0, "a"))], id="nothing acknowledged"),
        pytest.param([*ABC, send("a", outcome="unknown"), ALL], id="a value twice"),
        pytest.param([{"op": "write"}], id="unknown operation"),
        pytest.param([send("a", 0, outcome="failed")], id="a failed send with an offset"),
        pytest.param([send("a", -1)], id="a negative offset"),
        pytest.param([{"op": "send", "process": "p"}], id="fields missing"),
        pytest.param(
            [{"op": "poll", "process": "c", "assignment": 1, "records": [[T, 0, "0", "a"]]}], id="types"
        ),
        pytest.param([read(0, 1, (5, "a"))], id="a record outside of its read"),
    ],
)
def test_what_proves_nothing_is_refused(history: list[Op]) -> None:
    with pytest.raises(HistoryError):
        judge(history)


# -- random histories ----------------------------------------------------------------------------------------


class Model:
    """A correct cluster of one topic, its clients, and the history that they write."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.logs: dict[int, list[str]] = {partition: [] for partition in range(rng.randint(1, 3))}
        self.history: list[Op] = []
        self.late: list[tuple[int, str]] = []
        """Unknown sends that may still arrive."""
        self.positions: dict[tuple[str, int], int] = {}
        self.assignments = dict.fromkeys(["c1", "c2"], 0)
        self.time = 0

    def run(self, steps: int) -> list[Op]:
        for process in self.assignments:
            self.assign(process)
        self.send("ok")
        for _ in range(steps):
            self.rng.choices([self.send, self.poll, self.assign, self.arrive], weights=[6, 4, 1, 2])[0]()
        for partition, log in self.logs.items():
            records = [[offset, value] for offset, value in enumerate(log)]
            self.history.append(
                {"op": "read", "topic": T, "partition": partition, "start_offset": 0}
                | {"end_offset": len(log), "records": records}
            )
        return self.history

    def send(self, outcome: str = "") -> None:
        self.time += 1
        outcome = outcome or self.rng.choices(["ok", "unknown", "failed"], weights=[6, 2, 1])[0]
        partition, value, offset = self.rng.choice(list(self.logs)), f"v{self.time}", None
        if outcome == "ok":
            offset = len(self.logs[partition])
            self.logs[partition].append(value)
        elif outcome == "unknown":
            self.late.append((partition, value))
        process = self.rng.choice(["p1", "p2"])
        self.history.append(send(value, offset, outcome, at=self.time, partition=partition, process=process))

    def arrive(self) -> None:
        if self.late:
            partition, value = self.late.pop(self.rng.randrange(len(self.late)))
            self.logs[partition].append(value)

    def assign(self, process: str = "") -> None:
        process = process or self.rng.choice(list(self.assignments))
        self.assignments[process] += 1
        starts = []
        for partition, log in self.logs.items():
            start = self.positions[process, partition] = self.rng.randint(0, len(log))
            starts.append([T, partition, start])
        self.history.append(
            {
                "op": "assign",
                "process": process,
                "assignment": self.assignments[process],
                "partitions": starts,
            }
        )

    def poll(self) -> None:
        process = self.rng.choice(list(self.assignments))
        records = []
        for partition, log in self.logs.items():
            start = self.positions[process, partition]
            end = self.positions[process, partition] = self.rng.randint(start, len(log))
            records += [[T, partition, offset, log[offset]] for offset in range(start, end)]
        self.history.append(
            {"op": "poll", "process": process, "assignment": self.assignments[process], "records": records}
        )


def correct_history(seed: int) -> list[Op]:
    rng = random.Random(seed)
    return Model(rng).run(rng.randint(5, 60))


# Each breaks a correct history in one way and says which kind must be found, or returns None where it cannot.
Mutation = Callable[[list[Op], random.Random], Kind | None]


def acknowledged(history: list[Op]) -> list[Op]:
    return [op for op in history if op["op"] == "send" and op["offset"] is not None]


def lose(history: list[Op], rng: random.Random) -> Kind | None:
    """No reader ever saw it; the final read came past it."""
    victim = rng.choice(acknowledged(history))
    for op in history:
        if op["op"] in ("poll", "read"):
            op["records"] = [record for record in op["records"] if record[-1] != victim["value"]]
    return Kind.LOST_WRITE


def hide_the_end(history: list[Op], rng: random.Random) -> Kind | None:
    """The log ends before an acknowledged record for everybody."""
    victim = rng.choice(acknowledged(history))
    partition, offset = victim["partition"], victim["offset"]
    for op in history:
        if op["op"] == "poll":
            op["records"] = [x for x in op["records"] if x[1] != partition or x[2] < offset]
        elif op["op"] == "read" and op["partition"] == partition:
            op["records"] = [x for x in op["records"] if x[0] < offset]
            op["end_offset"] = offset
    return Kind.UNSEEN_WRITE


def double(history: list[Op], rng: random.Random) -> Kind | None:
    final = rng.choice([op for op in history if op["op"] == "read"])
    if not final["records"]:
        return None
    final["records"].append([final["end_offset"], rng.choice(final["records"])[1]])
    final["end_offset"] += 1
    return Kind.DUPLICATE


def fail_what_was_read(history: list[Op], rng: random.Random) -> Kind | None:
    if len(acknowledged(history)) < 2:
        return None  # nothing acknowledged would be left
    victim = rng.choice(acknowledged(history))
    victim.update(outcome="failed", offset=None)
    return Kind.ABORTED_READ


def invent(history: list[Op], rng: random.Random) -> Kind | None:
    final = rng.choice([op for op in history if op["op"] == "read"])
    final["records"].append([final["end_offset"], "invented"])
    final["end_offset"] += 1
    return Kind.PHANTOM_READ


def swap_values(history: list[Op], rng: random.Random) -> Kind | None:
    """One reader sees two records in each other's place."""
    reads = [op for op in history if op["op"] == "read" and len(op["records"]) > 1]
    known = {(op["partition"], op["offset"]) for op in acknowledged(history)}
    reads = [op for op in reads if any((op["partition"], record[0]) in known for record in op["records"])]
    if not reads:
        return None
    final = rng.choice(reads)
    certain = rng.choice([i for i, x in enumerate(final["records"]) if (final["partition"], x[0]) in known])
    other = rng.choice([i for i in range(len(final["records"])) if i != certain])
    one, two = final["records"][certain], final["records"][other]
    one[1], two[1] = two[1], one[1]
    return Kind.INCONSISTENT_OFFSET


def polls_with(history: list[Op], count: int) -> list[tuple[Op, int]]:
    """Polls that have so many records of a partition, and the index of the first of them."""
    found = []
    for op in history:
        if op["op"] == "poll":
            found += [
                (op, index)
                for index in range(len(op["records"]) - count + 1)
                if len({x[1] for x in op["records"][index : index + count]}) == 1
            ]
    return found


def repeat_in_poll(history: list[Op], rng: random.Random) -> Kind | None:
    if not (polls := polls_with(history, 1)):
        return None
    op, index = rng.choice(polls)
    op["records"].insert(index, list(op["records"][index]))
    return Kind.NONMONOTONIC_POLL


def repeat_poll(history: list[Op], rng: random.Random) -> Kind | None:
    if not (polls := polls_with(history, 1)):
        return None
    op, _ = rng.choice(polls)
    history.insert(next(i for i, x in enumerate(history) if x is op), json.loads(json.dumps(op)))
    return Kind.NONMONOTONIC_POLL


def skip(history: list[Op], rng: random.Random) -> Kind | None:
    """A record is left out of the middle of a poll."""
    if not (polls := polls_with(history, 3)):
        return None
    op, index = rng.choice(polls)
    del op["records"][index + 1]
    return Kind.SKIPPING_POLL


def reorder_sends(history: list[Op], rng: random.Random) -> Kind | None:
    sends = acknowledged(history)
    pairs = [
        (one, two)
        for one in sends
        for two in sends
        if one["begin_ns"] < two["begin_ns"]
        and (one["process"], one["partition"]) == (two["process"], two["partition"])
    ]
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    one["begin_ns"], two["begin_ns"] = two["begin_ns"], one["begin_ns"]
    return Kind.NONMONOTONIC_SEND


@given(seed=st.integers(0, 2**32))
def test_random_correct_histories_pass(seed: int) -> None:
    assert judge(correct_history(seed)).findings == []


@pytest.mark.parametrize(
    "mutate",
    [
        lose,
        hide_the_end,
        double,
        fail_what_was_read,
        invent,
        swap_values,
        repeat_in_poll,
        repeat_poll,
        skip,
        reorder_sends,
    ],
)
def test_one_mutation_of_a_random_history_is_caught(mutate: Mutation) -> None:
    applied = 0

    @given(seed=st.integers(0, 2**32))
    def caught(seed: int) -> None:
        nonlocal applied
        history = correct_history(seed)
        expected = mutate(history, random.Random(seed))
        if expected is not None:
            applied += 1
            assert expected in kinds(history)

    caught()
    assert applied >= 30  # of a hundred examples: the mutation is not one that hardly ever applies


# -- the command ---------------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As scripts/check-history does: with nothing but the standard library and the checkout."""
    command = [sys.executable, "-P", "-S", "-m", "tests.history", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def write(path: Path, history: list[Op]) -> str:
    path.write_text("".join(json.dumps(op) + "\n" for op in history), encoding="utf-8")
    return str(path)


def test_the_command_judges_several_files_and_cites_their_lines(tmp_path: Path) -> None:
    sends, reads = write(tmp_path / "sends", ABC), write(tmp_path / "reads", [ALL, poll((0, "a"), (2, "c"))])
    done = run(sends, reads, "--format", "json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["valid"] is False
    assert report["counts"] == {"skipping poll": 1}
    assert report["sends"] == {"ok": 3, "failed": 0, "unknown": 0}
    (finding,) = report["findings"]
    assert (finding["topic"], finding["partition"], finding["offset"]) == (T, 0, 1)
    assert finding["proof"] == [{"line": f"{reads}:2", "operation": poll((0, "a"), (2, "c"))}]

    text = run(sends, reads)
    assert text.returncode == 1
    assert "skipping poll t-0@1" in text.stdout
    assert f"{reads}:2" in text.stdout


def test_exit_codes(tmp_path: Path) -> None:
    good = run(write(tmp_path / "good", [*ABC, ALL]))
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "no violation")
    assert run(write(tmp_path / "silent", ABC)).returncode == 2
    (tmp_path / "broken").write_text('{"op": "send"\n', encoding="utf-8")
    broken = run(str(tmp_path / "broken"))
    assert broken.returncode == 2
    assert f"{tmp_path / 'broken'}:1:" in broken.stderr
    assert run(str(tmp_path / "missing")).returncode == 2


# -- transactions ------------------------------------------------------------------------------------------


def txn(name: str, outcome: str = "ok", *offsets: tuple[int, int]) -> Op:
    """It has consumed the offsets of these ranges of u-0, for group g."""
    ranges = [["g", "u", 0, start, end] for start, end in offsets]
    return {"op": "txn", "process": "p", "txn": name, "outcome": outcome, "offsets": ranges}


def polled_in(name: str, *records: tuple[int, str]) -> Op:
    return {**poll(*records, process=name), "txn": name}


def committed(offset: int | None) -> Op:
    return {"op": "committed", "group": "g", "offsets": [["u", 0, offset]]}


GAPS: Op = {"op": "topic", "topic": T, "gaps": True}


def test_an_aborted_record_that_was_read_is_found() -> None:
    history = [GAPS, send("a", 0, at=1), send("b", outcome="failed", txn="x"), txn("x", "failed")]
    assert kinds([*history, read(0, 3, (0, "a"))]) == set()
    assert kinds([*history, read(0, 3, (0, "a"), (1, "b"))]) == {Kind.ABORTED_READ}


def test_an_unknown_transaction_is_there_or_not() -> None:
    sent = [
        GAPS,
        send("a", 0),
        *(send(value, outcome="unknown", txn="x") for value in "bc"),
        txn("x", "unknown"),
    ]
    assert kinds([*sent, read(0, 4, (0, "a"))]) == set()
    assert kinds([*sent, read(0, 4, (0, "a"), (1, "b"), (2, "c"))]) == set()
    assert kinds([*sent, read(0, 4, (0, "a"), (1, "b"))]) == {Kind.PARTIAL_TRANSACTION}
    assert kinds([*sent, poll((0, "a"), (1, "b"))]) == set(), "nobody has looked behind"


def test_transactions_that_read_from_each_other_are_found() -> None:
    sent = [
        GAPS,
        send("a", 0, at=1, txn="x"),
        send("b", 2, at=2, txn="y"),
        send("c", 4, at=3, txn="z"),
        *(txn(name) for name in "xyz"),
        read(0, 6, (0, "a"), (2, "b"), (4, "c")),
    ]
    chain = [*sent, polled_in("y", (0, "a")), polled_in("z", (2, "b"))]
    assert kinds(chain) == set()
    (finding,) = judge([*chain, polled_in("x", (4, "c"))]).findings
    assert finding.kind is Kind.CYCLE and set(finding.proof) == {1, 2, 3, 8, 9, 10}


def test_a_transaction_may_read_its_own_past() -> None:
    """Nothing is a cycle that has one member: who reads what it wrote reads it after its commit."""
    assert (
        kinds([GAPS, send("a", 0, txn="x"), txn("x"), polled_in("x", (0, "a")), read(0, 2, (0, "a"))])
        == set()
    )


def test_offsets_that_went_back_are_found() -> None:
    sent = [*ABC, ALL]
    assert kinds([*sent, txn("x", "ok", (0, 5)), txn("y", "ok", (5, 9)), committed(9)]) == set()
    assert kinds([*sent, txn("x", "ok", (0, 5)), txn("y", "failed", (5, 9)), committed(5)]) == set()
    assert kinds([*sent, txn("x", "ok", (0, 5)), txn("y", "ok", (3, 9)), committed(9)]) == {
        Kind.CONSUMED_TWICE
    }
    assert kinds([*sent, txn("x", "ok", (0, 5)), txn("y", "ok", (5, 9)), committed(5)]) == {Kind.LOST_OFFSETS}
    assert kinds([*sent, txn("x", "ok", (0, 5)), committed(None)]) == {Kind.LOST_OFFSETS}
    assert kinds([*sent, txn("x", "failed", (0, 5)), txn("y", "ok", (0, 5)), committed(5)]) == set()
    assert kinds([*sent, txn("x", "ok", (0, 5)), txn("y", "failed", (5, 9)), committed(9)]) == {
        Kind.ABORTED_OFFSETS
    }


def test_records_that_no_transaction_has_consumed_are_found() -> None:
    """A group that goes on behind an aborted transaction's offsets has lost what that had consumed."""
    sent = [
        {**GAPS, "topic": "u"},
        *(send(f"v{offset}", offset, at=offset, topic="u") for offset in (0, 1, 2, 3, 6)),
        {**read(0, 8, (0, "v0"), (1, "v1"), (2, "v2"), (3, "v3"), (6, "v6")), "topic": "u"},
    ]
    go_on = [txn("z", "ok", (6, 7)), committed(7)]
    assert kinds([*sent, txn("x", "ok", (0, 4)), *go_on]) == set(), "nothing is at 4 and 5"
    assert kinds([*sent, txn("x", "failed", (0, 2)), txn("y", "ok", (2, 4)), *go_on]) == {Kind.UNCONSUMED}
    assert kinds([*sent, txn("x", "ok", (0, 2)), *go_on]) == {Kind.UNCONSUMED}
    assert kinds([*sent, txn("x", "unknown", (0, 4)), *go_on]) == set()
    assert kinds([*sent, *go_on]) == set(), "who says that the group began at 0?"
    assert kinds([*sent, txn("x", "failed", (0, 2)), txn("y", "failed", (2, 7)), committed(None)]) == set()
    (finding,) = judge([*sent, txn("x", "ok", (0, 2)), *go_on]).findings
    assert (finding.place, finding.offset) == (("u", 0), 2)


def test_transactions_are_counted_by_outcome() -> None:
    verdict = judge([*ABC, ALL, txn("x"), txn("y", "failed"), txn("z", "ok")])
    assert verdict.transactions == {"ok": 2, "failed": 1, "unknown": 0}


def test_an_unknown_transaction_whose_records_are_there_has_consumed() -> None:
    sent = [GAPS, send("a", 0), send("b", outcome="unknown", txn="x"), txn("x", "unknown", (0, 5))]
    again = [txn("y", "ok", (0, 5)), committed(5)]
    assert kinds([*sent, *again, read(0, 3, (0, "a"))]) == set()
    assert kinds([*sent, *again, read(0, 3, (0, "a"), (1, "b"))]) == {Kind.CONSUMED_TWICE}


@pytest.mark.parametrize(
    "line", [txn("x", "maybe"), {**txn("x"), "txn": 3}, {**committed(1), "offsets": [["u", 0]]}]
)
def test_transactions_that_make_no_sense_are_refused(line: Op) -> None:
    with pytest.raises(HistoryError):
        judge([*ABC, ALL, line])


def test_a_transaction_ends_once() -> None:
    with pytest.raises(HistoryError, match="ended twice"):
        judge([*ABC, ALL, txn("x"), txn("x")])
