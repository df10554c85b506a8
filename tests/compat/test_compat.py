"""What scripts/compat makes of other programs' words, and the tables it writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.compat import librdkafka, report, suite
from tests.compat.report import Case, Outcome, Results, SuiteResult
from tests.compat.suite import Missing, Ran, Target, excluded, need, read_json_lines, read_junit, run

TARGET = Target("localhost:1", report.VARVE, Path("unused"), "abc1234")
PASSED = "\x1b[32m================= Test 0001_multiobj PASSED =================\x1b[0m\n"
FAILED = (
    '### Test "0081_admin (sub:12: classic)" failed at 0081-admin.c:12:do_it() at Sat Nov 21: ###\nexpected 3 topics\n'
    "|\x1b[31m 0081_admin      |     FAILED |   1.234s \x1b[0m|\x1b[31m do_it():12: expected\x1b[0m"
)


def outcome_of(name: str, output: str, code: int | None = 0) -> tuple[Outcome, str]:
    return librdkafka.read_outcome(name, librdkafka.ANSI.sub("", output), code)


def test_librdkafka_outcomes() -> None:
    assert outcome_of("0001_multiobj", PASSED) == (Outcome.PASSED, "")
    assert outcome_of("0081_admin", FAILED) == (Outcome.FAILED, "0081-admin.c:12:do_it expected 3 topics")
    skipped = "| 0053_stats |    SKIPPED |   0.000s | RapidJSON not available"
    assert outcome_of("0053_stats", skipped) == (Outcome.SKIPPED, "RapidJSON not available")


def test_librdkafka_runner_that_ends_early_or_never_is_a_failure() -> None:
    assert outcome_of("0001_multiobj", "starting\nAssertion `0' failed.", -6)[0] is Outcome.FAILED
    assert "no result in" in outcome_of("0001_multiobj", "still waiting", None)[1]
    assert outcome_of("0002_unkpart", PASSED)[0] is Outcome.FAILED, "another test's pass"


def test_librdkafka_tests_are_those_that_need_a_broker() -> None:
    source = """
struct test tests[] = {
    {.name = "<MAIN>"},
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0045_updates,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),
    _TEST(8000_idle, TEST_F_MANUAL),
    _TEST(0001_multiobj, 0),
    {NULL}};
"""
    assert librdkafka.tests_of(source) == {
        "0045_updates": ("noautocreate",),
        "0103_transactions": ("default", "ak23"),
        "0001_multiobj": ("default",),
    }


def test_exclusions_are_for_all_brokers_or_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"librdkafka": {"everywhere": {"017*": "share groups"}, report.VARVE: {"0081_admin": "later"}}}
    monkeypatch.setattr(suite, "EXCLUSIONS", tables)
    names = ["0081_admin", "0170_share_consumer_subscription", "0001_multiobj"]
    assert set(excluded(TARGET, "librdkafka", names)) == {"0081_admin", "0170_share_consumer_subscription"}
    kafka = Target("localhost:1", report.KAFKA, Path("unused"), "")
    assert set(excluded(kafka, "librdkafka", names)) == {"0170_share_consumer_subscription"}


def test_a_scenario_that_never_answers_has_failed() -> None:
    said = '{"scenarios":["one","two"]}\n{"case":"one","outcome":"passed","note":"","seconds":1.5}\nhangs\n'
    cases = read_json_lines(TARGET, Ran(None, said, 9))
    assert cases["one"] == Case("one", Outcome.PASSED, "", 1.5, "abc1234")
    assert cases["two"].outcome is Outcome.FAILED
    assert "hangs" in cases["two"].note
    assert read_json_lines(TARGET, Ran(1, "no class", 1))["start"].outcome is Outcome.FAILED


def test_junit(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    assert read_junit(TARGET, file, Ran(2, "usage error", 1))["pytest"].outcome is Outcome.FAILED
    file.write_text(
        '<testsuites><testsuite><testcase classname="a.b.test_x" name="test_one" time="0.5"/>'
        '<testcase classname="a.b.test_x" name="test_two"><failure message="broke | it">long</failure></testcase>'
        '<testcase classname="a.b.test_x" name="test_three"><skipped message="not here"/></testcase>'
        "</testsuite></testsuites>",
        encoding="utf-8",
    )
    cases = read_junit(TARGET, file, Ran(1, "", 1))
    assert [(case.outcome, case.note) for case in cases.values()] == [
        (Outcome.PASSED, ""),
        (Outcome.FAILED, "broke / it"),
        (Outcome.SKIPPED, "not here"),
    ]


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = "import subprocess, sys; print('up', flush=True); subprocess.run(['sleep', '60'])"
    ran = run([sys.executable, "-c", script], tmp_path / "log", 1)
    assert (ran.code, ran.output) == (None, "up\n")
    assert ran.seconds < 10


def test_what_is_missing_is_said_with_what_helps() -> None:
    with pytest.raises(Missing, match="no-such-program is not installed; this helps: apt-get install it"):
        need("no-such-program", "apt-get install it")


def suite_of(**outcomes: Outcome) -> SuiteResult:
    cases = {
        name: Case(name, outcome, "because" if outcome is not Outcome.PASSED else "")
        for name, outcome in outcomes.items()
    }
    return SuiteResult("suite", "client 1", "2026-11-21", "", cases)


def test_a_run_of_one_case_keeps_the_others_and_a_missing_client_keeps_all() -> None:
    results: Results = {}
    report.merge(results, report.VARVE, suite_of(one=Outcome.FAILED, two=Outcome.PASSED))
    report.merge(results, report.VARVE, suite_of(one=Outcome.PASSED))
    assert {case.outcome for case in results[report.VARVE]["suite"].cases.values()} == {Outcome.PASSED}
    report.merge(
        results, report.VARVE, SuiteResult("suite", "client", "2026-11-22", "no node on this machine")
    )
    assert len(results[report.VARVE]["suite"].cases) == 2
    assert "no node on this machine" in report.render(results)


def test_results_are_kept_in_a_folder_that_is_made_for_them(tmp_path: Path) -> None:
    report.keep(tmp_path / "new" / "results", report.VARVE, suite_of(one=Outcome.PASSED))
    kept = report.load(tmp_path / "new" / "results" / report.JSON_NAME)
    assert kept[report.VARVE]["suite"].cases["one"].outcome is Outcome.PASSED


def test_the_document_names_what_differs_from_kafka(tmp_path: Path) -> None:
    results: Results = {}
    report.merge(
        results, report.VARVE, suite_of(one=Outcome.FAILED, two=Outcome.PASSED, three=Outcome.FAILED)
    )
    report.merge(
        results, report.KAFKA, suite_of(one=Outcome.PASSED, two=Outcome.PASSED, three=Outcome.FAILED)
    )
    assert report.differences(results) == ["suite: one"]
    report.save(results, tmp_path / "results.json")
    assert report.load(tmp_path / "results.json") == results
    assert "| one | **failed** | passed | because |" in report.render(results)


def test_the_document_is_made_of_the_results_that_are_kept() -> None:
    assert (report.HERE / report.DOCUMENT_NAME).read_text(encoding="utf-8") == report.render(
        report.load(report.HERE / report.JSON_NAME)
    )
