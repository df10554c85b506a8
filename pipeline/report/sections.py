"""The sections of a report in words and numbers. Each takes one run, or two that are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline.report import figures
from pipeline.report.blocks import NOTHING, label, paragraph, section, table
from pipeline.report.markup import Html, element, join
from pipeline.report.run import Run
from pipeline.report.scales import figure, with_unit

_ALIKE = 0.05


def verdict(run: Run) -> Html:
    """The one sentence that the run was made for."""
    load, verify = run.load, run.verify
    lost = load.get("failed", 0) + load.get("unreported", 0) if load else 0
    interrupted = "The run was interrupted. " if run.is_interrupted else ""
    if verify is not None and not verify.get("passed"):
        failed = [check for check in verify.get("checks", []) if check.get("status") != "PASS"]
        kind, text = "bad", f"{len(failed)} of {len(verify.get('checks', []))} checks failed."
    elif verify is not None:
        count = len(verify.get("checks", []))
        found = "every acknowledged record was found as it was sent"
        if run.stream is not None:
            found = "every record that was fed came out of the query, as it should be"
        kind, text = "good", f"All {count} checks passed: {found}."
        if lost:
            kind = "so-so"
            text += f" {lost:,} records were never acknowledged."
    elif lost and not run.is_interrupted:
        kind, text = "bad", f"{lost:,} records were not acknowledged, and the run was not verified."
    else:
        kind, text = "so-so", "Not verified: nothing here says whether the cluster kept its records."
    if interrupted and kind == "good":
        kind = "so-so"
    sign = {"good": "✓", "bad": "✗", "so-so": "!"}[kind]
    return element(
        "p",
        {"class": f"verdict {kind}"},
        element("span", {"class": "sign", "aria-hidden": "true"}, sign),
        element("span", None, interrupted + text),
    )


def headline_figures(runs: Sequence[Run]) -> Html | None:
    """Of one run as tiles; of two as a table with the ratio."""
    first, *others = (figures.headlines(run) for run in runs)
    if not others:
        tiles = [
            element(
                "div",
                None,
                element("dt", None, one.name),
                element("dd", None, *_figure_with_unit(one)),
            )
            for one in first
        ]
        return element("dl", {"class": "tiles"}, *tiles) if tiles else None
    names = [label(run, runs) for run in runs]
    by_name = [{one.name: one for one in headlines} for headlines in (first, others[0])]
    rows: list[list[Html | str]] = []
    for name in dict.fromkeys(name for known in by_name for name in known):
        both = [known.get(name) for known in by_name]
        rows.append([name, *(join(*_figure_with_unit(one)) for one in both), _ratio(*both)])
    if not rows:
        return None
    return section(
        "Figures",
        table("Figures of both runs", ["", *names, "ratio"], rows, kind="figures"),
        paragraph(f"The ratio is {names[0]} over {names[1]}. Within 5 % they are called alike.", "note"),
    )


def _figure_with_unit(one: figures.Headline | None) -> list[Html | str]:
    if one is None or one.value is None:
        return [NOTHING]
    shown, unit = with_unit(one.value, one.unit)
    return [shown, element("span", {"class": "unit"}, f" {unit}")]


def _ratio(one: figures.Headline | None, other: figures.Headline | None) -> Html | str:
    if one is None or other is None or one.value is None or not other.value:
        return ""
    ratio = one.value / other.value
    text = f"{ratio:.2f}\N{MULTIPLICATION SIGN}" if ratio < 10 else f"{figure(ratio)}\N{MULTIPLICATION SIGN}"
    if one.higher_is_better is None:
        return text
    if abs(ratio - 1) <= _ALIKE:
        kind, judgement = None, "alike"
    elif (ratio > 1) == one.higher_is_better:
        kind, judgement = "good", "better"
    else:
        kind, judgement = "bad", "worse"
    return element("span", {"class": kind}, text, element("span", {"class": "unit"}, f" {judgement}"))


def what_differs(one: Run, other: Run) -> Html:
    mine, theirs = figures.settings(one), figures.settings(other)
    # When and as what each was run always differs, and decides nothing.
    names = [
        name
        for name in figures.differing(mine, theirs)
        if name not in ("started_at", "run_id", "start_timestamp_ms")
    ]
    if not names:
        return section(
            "Settings that differ", paragraph("None: both runs had the same settings and versions.")
        )
    rows = [[name, mine.get(name, ""), theirs.get(name, "")] for name in names]
    names_of_runs = [label(run, (one, other)) for run in (one, other)]
    return section(
        "Settings that differ",
        table("Settings that differ", ["setting", *names_of_runs], rows, 9, "settings"),
    )


def checks(run: Run, title: str = "Checks") -> Html | None:
    """What the verifying job found; the offenders below each check that failed."""
    if run.verify is None:
        return None
    rows = []
    for check in run.verify.get("checks", []):
        is_passed = check["status"] == "PASS"
        status = element(
            "span", {"class": "good" if is_passed else "bad"}, "✓ pass" if is_passed else "✗ fail"
        )
        rows.append([check["name"], f"{check['expected']:,}", f"{check['actual']:,}", status])
    found = (
        f"{run.verify['records_read']:,} records read by {run.verify['read_by']}."
        if "records_read" in run.verify
        else None
    )
    offenders = [_offenders(check) for check in run.verify.get("checks", []) if check.get("sample")]
    return section(
        title, paragraph(found, "lead"), table("Checks", ["check", "expected", "found", ""], rows), *offenders
    )


def _offenders(check: dict[str, Any]) -> Html:
    items = [
        element("li", None, element("code", None, json.dumps(offender, ensure_ascii=False)))
        for offender in check["sample"]
    ]
    return element(
        "div",
        {"class": "offenders"},
        element("h3", None, f"{check['name']}: some of them"),
        element("ul", None, *items),
    )


def delivery_errors(runs: Sequence[Run]) -> Html | None:
    rows = [
        [error, f"{count:,}", *([label(run, runs)] if len(runs) > 1 else [])]
        for run in runs
        for error, count in ((run.load or {}).get("errors") or {}).items()
    ]
    if not rows:
        return None
    header = ["error", "records", *(["run"] if len(runs) > 1 else [])]
    return section("Records that were not acknowledged", table("Delivery errors", header, rows))


def all_settings(runs: Sequence[Run]) -> Html | None:
    known = [figures.settings(run) for run in runs]
    names = list(dict.fromkeys(name for one in known for name in one))
    if not names:
        return None
    if len(known) > 1:
        differ = figures.differing(known[0], known[1])
        names = [*differ, *(name for name in names if name not in differ)]
    rows = [[name, *(one.get(name, "") for one in known)] for name in names]
    header = ["setting", *(label(run, runs) if len(runs) > 1 else "value" for run in runs)]
    return section("Settings and versions", table("Settings and versions", header, rows, 9, "settings"))
