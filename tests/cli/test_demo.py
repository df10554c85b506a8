"""`varve demo divergence` without a cluster: its options, its table, the commands of other clusters, interrupts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from broker.cli.divergence.brokers import PORTS, OtherBrokers, free_ports
from broker.cli.divergence.interrupts import Interrupts
from broker.cli.divergence.play import Outcome
from broker.cli.divergence.report import as_json, as_table, is_as_promised
from broker.cli.divergence.scenarios import SCENARIOS, Answer, Scenario
from broker.cli.divergence.table import Reading, Table
from broker.cli.divergence.variants import KILLED, VARIANTS
from broker.cli.local_cluster import DEFAULT_PORTS
from broker.cli.root import CommandError
from tests.cli.conftest import Varve

RIGHT, WRONG = Answer("no k", False), Answer("k=V", True)


def outcome(scenario: type[Scenario], is_coordinated: bool | None, *, is_damaged: bool) -> Outcome:
    return Outcome(scenario, is_coordinated, {1: RIGHT, 2: WRONG if is_damaged else RIGHT, 3: RIGHT})


def test_the_table_sets_both_modes_of_a_scenario_against_each_other() -> None:
    outcomes = [
        outcome(scenario, is_coordinated, is_damaged=not is_coordinated)
        for is_coordinated in (False, True)
        for scenario in SCENARIOS[:2]
    ]
    assert as_table(outcomes, 2).splitlines() == [
        "                     node 1  node 2*  node 3",
        "1. A deleted key comes back: put k=V | delete k",
        "   coordination off  no k    k=V      no k    DAMAGED",
        "   coordination on   no k    no k     no k    right",
        "2. An aborted record is read: begin, put poison | abort | begin, put good, commit",
        "   coordination off  no k    k=V      no k    DAMAGED",
        "   coordination on   no k    no k     no k    right",
        "* away between the first | and the end of the line. Each node is asked when it leads.",
    ]


def test_json_says_who_answered_what() -> None:
    report = as_json([outcome(SCENARIOS[0], False, is_damaged=True)], KILLED, 2)
    assert (report["as_promised"], report["variant"], report["away"]) == (True, "killed", 2)
    (row,) = report["outcomes"]
    assert (row["scenario"], row["coordinated"], row["damaged"]) == (1, False, True)
    assert row["answers"]["2"] == {"text": "k=V", "damaged": True}


@pytest.mark.parametrize(
    ("variant", "is_coordinated", "is_damaged", "promised"),
    [
        ("killed", False, True, True),
        ("killed", False, False, False),
        ("killed", True, False, True),
        ("killed", True, True, False),
        ("killed", None, False, True),
        ("killed", None, True, False),
        # The replica begins anew.
        ("wiped", False, False, True),
        ("wiped", False, True, False),
    ],
)
def test_what_is_promised(
    variant: str, is_coordinated: bool | None, is_damaged: bool, promised: bool
) -> None:
    good = outcome(SCENARIOS[0], True, is_damaged=False)
    asked = outcome(SCENARIOS[1], is_coordinated, is_damaged=is_damaged)
    assert is_as_promised([good, asked], VARIANTS[variant]) is promised


@pytest.mark.parametrize(
    ("number", "values", "text", "is_damaged"),
    [
        (1, {}, "no k", False),
        (1, {b"k": b"V"}, "k=V", True),
        (2, {b"good": b"committed"}, "good", False),
        (2, {b"good": b"committed", b"poison": b"aborted"}, "poison and good", True),
        (2, {}, "nothing", True),
        (3, {}, "no g", False),
        (3, {b"g": b"OLD"}, "g=OLD", True),
        (3, {b"junk": b"aborted"}, "junk=aborted", True),
        (4, {b"k": b"2", b"last": b"plain"}, "reads to the end", False),
        (4, {b"k": b"1", b"last": b"plain"}, "lacks k or last", True),
        (4, {b"k": b"2"}, "lacks k or last", True),
    ],
)
def test_what_a_scenario_makes_of_an_answer(
    number: int, values: dict[bytes, bytes], text: str, is_damaged: bool
) -> None:
    scenario = SCENARIOS[number - 1](Table("localhost:1", "t"), "id")
    filler = {b"filler": b"1"}
    assert scenario.answer(Reading({**values, **filler}, 3, 0, 9, 9)) == (text, is_damaged)
    assert scenario.answer(Reading({**values, **filler}, 3, 0, 4, 9)) == ("stops at 4 of 9", True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--against", "localhost:1"], "--against needs --stop-node and --start-node"),
        (["--stop-node", "true"], "are for --against"),
        (["--scenario", "5"], "5 is not in the range"),
        (["--variant", "burnt"], "'burnt' is not one of"),
        (
            ["--against", "h:1", "--stop-node", "a", "--start-node", "b", "--variant", "wiped"],
            "stopped, leader",
        ),
        (["--against", "h:1", "--stop-node", "a", "--start-node", "b", "--keep"], "decides by itself"),
        (["--against", "h:1", "--stop-node", "a", "--start-node", "b", "--with-coordination"], "by itself"),
    ],
)
def test_wrong_options_are_refused(varve: Varve, options: list[str], words: str) -> None:
    refused = varve("demo", "divergence", *options)
    assert refused.returncode == 2
    assert words in refused.stderr


def test_a_cluster_that_nobody_finds_is_one_line(varve: Varve) -> None:
    commands = ("--stop-node", "true", "--start-node", "true")
    refused = varve("demo", "divergence", "--against", "localhost:1", *commands)
    assert refused.returncode == 1
    assert refused.stderr.startswith("varve: no broker answers at localhost:1 (connection refused)")
    assert refused.stderr.count("\n") == 1


def test_the_brokers_of_another_cluster_are_stopped_and_started_by_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    brokers = OtherBrokers("localhost:1", f"echo stop {{node}} >> {log}", f"echo start {{node}} >> {log}")
    brokers.stop(2)
    brokers.start(2)
    brokers.start_stopped()
    assert log.read_text() == "stop 2\nstart 2\n"
    brokers.stop(3)
    brokers.start_stopped()
    assert log.read_text() == "stop 2\nstart 2\nstop 3\nstart 3\n"


def test_a_command_that_fails_is_shown_with_what_it_said() -> None:
    brokers = OtherBrokers("localhost:1", "echo no broker {node} >&2; exit 3", "true")
    with pytest.raises(CommandError, match="failed with exit code 3: no broker 7"):
        brokers.stop(7)


def test_its_ports_are_not_those_of_varve_cluster_up() -> None:
    assert not {port + more for port in DEFAULT_PORTS for more in (-1, 0, 1)} & set(PORTS)
    ports = free_ports(4)
    assert len({*ports, *(port + 1 for port in ports)}) == 8


def test_an_interrupt_waits_until_a_process_is_written_down() -> None:
    interrupts = Interrupts()
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.heard(), interrupts.held():
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("all")
    assert done == ["all"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_second_interrupt_does_not_disturb_what_tidies_up() -> None:
    interrupts = Interrupts()
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.heard():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("never")
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            with interrupts.held():
                os.kill(os.getpid(), signal.SIGTERM)
            done.append("tidied up")
    assert done == ["tidied up"]
