"""The whole page: head, style, one article for each run or pair of runs, and nothing from anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pipeline.report import figures, sections
from pipeline.report.blocks import NOTHING, Pictures, label, section, table
from pipeline.report.experiment import experiment
from pipeline.report.markup import Html, element, join
from pipeline.report.over_time import over_time, percentiles
from pipeline.report.run import Run

Article = tuple[Run, ...]
"""One run, or the run and the one that it is compared with."""

# Nothing may be fetched or run, whatever a run's files hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, articles: Sequence[Article]) -> str:
    """`title`: of the folder or folders. Several articles are those of a fault test."""
    pictures = Pictures()
    is_one = len(articles) == 1
    bodies = [_article(runs, pictures, f"run-{n}", is_one) for n, runs in enumerate(articles, 1)]
    head = join(
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        # Or a browser asks the server for one.
        element("link", {"rel": "icon", "href": "data:,"}),
        element("title", None, f"{title} - Varve pipeline"),
        element("style", None, Html(_style())),
    )
    overview = None if is_one else _overview(title, articles)
    footer = element("footer", None, "Written by ", element("code", None, "python -m pipeline report"), ".")
    body = element("body", None, element("main", None, overview, *bodies, footer))
    return f"<!DOCTYPE html>\n{element('html', {'lang': 'en'}, element('head', None, head), body)}\n"


def _style() -> str:
    return files("pipeline.report").joinpath("style.css").read_text(encoding="utf-8")


def _article(runs: Article, pictures: Pictures, identity: str, is_one: bool) -> Html:
    run = runs[0]
    names = [label(one, runs) for one in runs]
    verdicts = [
        element(
            "div",
            None,
            element("p", {"class": "panel-name"}, name) if len(runs) > 1 else None,
            sections.verdict(one),
        )
        for one, name in zip(runs, names, strict=True)
        if one.config
    ]
    missing = [
        element("li", None, f"{name}: {text}" if len(runs) > 1 else text)
        for one, name in zip(runs, names, strict=True)
        for text in one.missing
    ]
    return element(
        "article",
        {"id": identity},
        element(
            "header",
            None,
            element("p", {"class": "eyebrow"}, "Comparison of runs" if len(runs) > 1 else _eyebrow(run)),
            element("h1" if is_one else "h2", {"class": "title"}, *_title(runs, names)),
            *(_subtitle(run) if len(runs) == 1 else []),
            element("div", {"class": "panels" if len(runs) > 1 else None}, *verdicts) if verdicts else None,
        ),
        sections.headline_figures(runs),
        element("ul", {"class": "missing"}, *missing) if missing else None,
        sections.what_differs(*runs) if len(runs) == 2 and run.config else None,
        experiment(runs, pictures),
        over_time(runs, pictures),
        percentiles(runs, pictures),
        *(
            sections.checks(one, f"Checks of {name}" if len(runs) > 1 else "Checks")
            for one, name in zip(runs, names, strict=True)
        ),
        sections.delivery_errors(runs),
        sections.all_settings(runs),
    )


def _eyebrow(run: Run) -> str:
    return "Experiment" if run.sweep is not None else "Report of a run"


def _title(runs: Article, names: Sequence[str]) -> list[Html | str]:
    if len(runs) == 1:
        run = runs[0]
        return [run.sweep.title if run.sweep is not None and not run.config else run.name]
    return [names[0], element("span", {"class": "against"}, " against "), names[1]]


def _subtitle(run: Run) -> list[Html]:
    """What was sent; where and when."""
    spec, options = run.config.get("spec") or {}, run.config.get("options") or {}
    lines: list[list[Html | str]] = []
    if spec:
        rate = (
            f"{spec['rate_per_s']:,.0f} records/s"
            if spec.get("rate_per_s")
            else "as fast as the cluster takes them"
        )
        lines.append([f"{spec['records']:,} records of {spec['record_size_bytes']:,} bytes, {rate}"])
    if options.get("bootstrap_server"):
        started = str(run.config.get("started_at", "")).replace("+0000", "Z")
        when = element("span", {"class": "whole"}, started)
        lines.append(
            [options["bootstrap_server"].replace(",", ", "), *([", started ", when] if started else [])]
        )
    return [element("p", {"class": "subtitle"}, *line) for line in lines]


def _overview(title: str, articles: Sequence[Article]) -> Html:
    """Of several runs: one row each, with the way to its article."""
    rows = []
    for n, runs in enumerate(articles, 1):
        for run in runs:
            load, verify = run.load or {}, run.verify or {}
            gap = next(iter(figures.gaps(run)[::-1]), None)
            checks = verify.get("checks", [])
            passed = sum(check["status"] == "PASS" for check in checks)
            kind = "good" if verify.get("passed") else "bad"
            rows.append(
                [
                    element("a", {"href": f"#run-{n}"}, label(run, runs)),
                    _share(load["acknowledged"], load["records"]) if load else NOTHING,
                    f"{gap['gap_ms']:,.0f} ms" if gap else NOTHING,
                    element("span", {"class": kind}, f"{passed} of {len(checks)}")
                    if verify
                    else "not verified",
                ]
            )
    header = ["run", "acknowledged", "longest gap", "checks passed"]
    return join(
        element(
            "header",
            None,
            element("p", {"class": "eyebrow"}, f"Report of {len(rows)} runs"),
            element("h1", {"class": "title"}, title),
        ),
        section("Overview", table("Overview", header, rows, kind="figures")),
    )


def _share(part: int, whole: int) -> Html:
    return join(f"{part:,}", element("span", {"class": "unit"}, f" of {whole:,}"))
