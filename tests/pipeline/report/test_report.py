"""`python -m pipeline report`: the file it writes, as a browser's parser reads it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyarrow", reason="needs the extra: pip install -e '.[spark]'")
pytest.importorskip("hdrh", reason="needs the extra: pip install -e '.[spark]'")

import pyarrow as pa

from pipeline.report.command import report_command
from pipeline.run_tables import write_table
from tests.pipeline.report.run_folders import (
    fault_section,
    load_section,
    stream_section,
    sweep,
    verify_section,
    write_run,
)

TIMES = "\N{MULTIPLICATION SIGN}"
VOID = {"meta", "link", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str, kind: str | None = None) -> list[Element]:
        """Elements within, in order; `kind`: one of their classes."""
        found: list[Element] = []
        for child in self.children:
            if isinstance(child, Element):
                if child.tag == tag and (
                    kind is None or kind in (child.attributes.get("class") or "").split()
                ):
                    found.append(child)
                found += child.all(tag, kind)
        return found

    def section(self, title: str) -> Element:
        [section] = [one for one in self.all("section") if one.all("h2")[0].text == title]
        return section


class Tree(HTMLParser):
    """Fails where the nesting is broken."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert len(self._open) == 1, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def run_command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(report_command, [str(argument) for argument in arguments])


def report(*arguments: str | Path) -> Element:
    result = run_command(*arguments)
    assert result.exit_code == 0, result.output
    return Tree(Path(result.stdout.strip()).read_text(encoding="utf-8")).root


def rows(table: Element) -> list[list[str]]:
    return [
        [cell.text for cell in row.children if isinstance(cell, Element)]
        for row in table.all("tbody")[0].all("tr")
    ]


def whole(**more: Any) -> dict[str, Any]:
    return {"load": load_section(), "verify": verify_section(), **more}


def test_a_whole_run_shows_its_figures_plots_checks_and_settings(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run-7", whole(fault=fault_section())))
    assert [title.text for title in page.all("h1")] == ["run-7"]
    [verdict] = page.all("p", "verdict")
    assert "All 3 checks passed" in verdict.text
    tiles = {tile.all("dt")[0].text: tile.all("dd")[0].text for tile in page.all("dl")[0].all("div")}
    assert tiles["throughput"] == "3 records/s"
    assert tiles["latency p99"] == "1 s"
    assert (tiles["longest gap"], tiles["gap after a fault"]) == ("980 ms", "270 ms")
    assert rows(page.section("Checks").all("table")[0])[0] == [
        "acknowledged records found",
        "12",
        "12",
        "✓ pass",
    ]
    assert ["compression", "none"] in rows(page.section("Settings and versions").all("table")[0])
    assert ["0 s", "3"] in rows(page.section("Throughput").all("table")[0])
    assert rows(page.section("Latency by percentile").all("table")[0])[-1][0] == "max"


def test_faults_are_flags_in_both_plots_and_words_beside_them(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run", whole(fault=fault_section())))
    for title in ("Throughput", "Latency over time"):
        wide = page.section(title).all("div", "wide")[0].all("svg")[0]
        assert [flag.text for flag in wide.all("g", "flag")] == ["1", "2"]
        assert [words.text for words in wide.all("text", "mark-name")] == ["kill -9 of node 2", "node 2 back"]
    befell = [entry.text for entry in page.section("What befell the cluster").all("li")]
    assert befell == ["11.5 skill -9 of node 2", "23.2 snode 2 back"]


def test_an_event_is_drawn_at_its_second(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run", whole(fault=fault_section())))
    svg = page.section("Throughput").all("div", "wide")[0].all("svg")[0]
    [first, _] = svg.all("line", "mark")
    ticks = {tick.text: float(tick.attributes["x"] or 0) for tick in svg.all("text", "tick")}
    assert float(first.attributes["x1"] or 0) == pytest.approx((ticks["1 s"] + ticks["2 s"]) / 2, abs=0.1)


def test_each_plot_says_in_words_what_it_shows(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run", whole()))
    identities = [
        element.attributes["id"]
        for tag in ("title", "desc")
        for element in page.all(tag)
        if element.attributes
    ]
    assert len(identities) == len(set(identities))
    plots = [svg for svg in page.all("svg") if svg.attributes.get("role") == "img"]
    assert len(plots) == 8
    for plot in plots:
        assert (plot.attributes["aria-labelledby"] or "").split() == [
            plot.all("title")[0].attributes["id"],
            plot.all("desc")[0].attributes["id"],
        ]
    latency = page.section("Latency over time").all("desc")[0].text
    assert "most 1,000 ms at 2.5 s" in latency


def test_the_file_needs_nothing_and_runs_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", whole(fault=fault_section()))
    (folder / "sweep.json").write_text(json.dumps(sweep()))
    before = {path.name for path in folder.iterdir()}
    page = report(folder)
    assert {path.name for path in folder.iterdir()} - before == {"report.html"}
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import|<script|<img|<iframe|<object|javascript:", text)
    for element in [Element("", {}, [page]), *page.all("link"), *page.all("a")]:
        target = element.attributes.get("href") or "#"
        assert target.startswith(("#", "data:,"))
    [policy] = [
        meta for meta in page.all("meta") if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert (policy.attributes["content"] or "").startswith("default-src 'none'")


HOSTILE = "<script>alert(1)</script>\"'&amp;<b onmouseover=x>\N{RIGHT-TO-LEFT OVERRIDE}\u0000\ud800</style>"


def test_what_the_files_say_cannot_become_markup(tmp_path: Path) -> None:
    summary = whole(fault={"events": [{"at_us": 1_795_716_705_000_000, "what": HOSTILE}], "gap": None})
    summary["verify"] = verify_section({HOSTILE: [{HOSTILE: HOSTILE}]})
    summary["verify"]["read_by"] = HOSTILE
    summary["load"]["errors"] = {HOSTILE: 1}
    folder = write_run(tmp_path / "<i>&\"run'", summary, topic=HOSTILE)
    experiment = sweep() | {"title": HOSTILE, "text": HOSTILE}
    experiment["tables"][0] |= {
        "title": HOSTILE,
        "text": HOSTILE,
        "columns": [{"name": HOSTILE, "unit": HOSTILE}],
        "rows": [[HOSTILE]],
    }
    experiment["plots"][1]["series"][0] = {"name": HOSTILE, "points": [[HOSTILE, 1]]}
    experiment["plots"][1]["x"]["name"] = experiment["plots"][1]["title"] = HOSTILE
    (folder / "sweep.json").write_text(json.dumps(experiment))
    page = report(folder)
    assert not page.all("script")
    assert not page.all("b")
    assert not page.all("i")
    allowed = {
        "class",
        "id",
        "href",
        "scope",
        "role",
        "tabindex",
        "aria-label",
        "aria-labelledby",
        "aria-hidden",
    }
    for tag in ("p", "td", "th", "li", "div", "text", "span", "title", "desc", "code"):
        for element in page.all(tag):
            assert not {name for name in element.attributes if name.startswith("on")}
            assert set(element.attributes) <= allowed | {"x", "y"}
    shown = re.sub("[\u0000\u202e\ud800]", "\N{REPLACEMENT CHARACTER}", HOSTILE)
    assert [page.section("Checks").all("h3")[0].text] == [f"{shown}: some of them"]


def test_a_failed_check_shows_its_offenders(tmp_path: Path) -> None:
    offender = {"sequence": 7, "partition": 1}
    summary = whole() | {"verify": verify_section({"duplicate records": [offender]})}
    page = report(write_run(tmp_path / "run", summary))
    assert "1 of 3 checks failed" in page.all("p", "verdict")[0].text
    checks = page.section("Checks")
    assert ["duplicate records", "0", "1", "✗ fail"] in rows(checks.all("table")[0])
    assert [json.loads(code.text) for code in checks.all("code")] == [offender]


def test_a_load_alone_says_that_nothing_was_verified(tmp_path: Path) -> None:
    page = report(write_run(tmp_path / "run"))
    assert "Not verified" in page.all("p", "verdict")[0].text
    assert not [section for section in page.all("section") if section.all("h2")[0].text == "Checks"]
    assert page.section("Throughput").all("svg")


def test_records_without_acknowledgement_are_no_success(tmp_path: Path) -> None:
    summary = whole()
    summary["load"] |= {"acknowledged": 9, "failed": 2, "unreported": 1, "errors": {"MSG_TIMED_OUT": 2}}
    page = report(write_run(tmp_path / "run", summary))
    [verdict] = page.all("p", "verdict")
    assert "so-so" in (verdict.attributes["class"] or "")
    assert "3 records were never acknowledged" in verdict.text
    assert rows(page.section("Records that were not acknowledged").all("table")[0]) == [
        ["MSG_TIMED_OUT", "2"]
    ]


def test_an_interrupted_run_shows_what_is_there_and_says_what_is_not(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {"interrupted": {"at": "2026-11-26T18:06:21+0000"}})
    for name in ("latency", "throughput"):
        (folder / f"{name}.parquet").unlink()
    page = report(folder)
    assert "interrupted" in page.all("p", "verdict")[0].text
    assert [entry.text for entry in page.all("ul", "missing")[0].all("li")] == [
        "The load did not come to its end, so there are no figures of it."
    ]
    assert [section.all("h2")[0].text for section in page.all("section")] == ["Settings and versions"]


def test_a_stream_is_a_run_without_a_load(tmp_path: Path) -> None:
    summary = {"stream": stream_section(), "verify": verify_section(), "fault": fault_section()}
    page = report(write_run(tmp_path / "run", summary))
    assert "every record that was fed came out of the query" in page.all("p", "verdict")[0].text
    tiles = dict(zip((one.text for one in page.all("dt")), (one.text for one in page.all("dd")), strict=True))
    assert (tiles["drivers killed"].strip(), tiles["repeated records"].strip()) == ("1", "3")
    assert "in the sink topic" in page.section("Latency over time").text
    assert page.section("Throughput").all("svg")
    assert "kill -9 of node 2" in page.text
    # Nothing is said to be missing.
    assert not page.all("ul", "missing")


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", whole(fault=fault_section()))
    (folder / "latency.parquet").unlink()
    page = report(folder)
    missing = page.all("ul", "missing")[0].text
    assert "latency.parquet" in missing
    assert "throughput.parquet" not in missing
    assert page.section("Throughput").all("svg")


def test_two_runs_are_drawn_by_the_same_axes_with_a_ratio_for_each_figure(tmp_path: Path) -> None:
    faster = load_section() | {"records_per_s": 6.0, "megabytes_per_s": 0.00303}
    one = write_run(tmp_path / "one", {"load": faster, "verify": verify_section()}, records=24)
    other = write_run(tmp_path / "other", whole(fault=fault_section()))
    # The other lasts longer: both axes reach as far.
    late = pa.table({"second": [0, 39], "partition": [0, 0], "records": [500, 1], "value_bytes": [1, 1]})
    write_table(other / "throughput.parquet", late)
    page = report(one, "--compare", other)
    figures = {row[0]: row[1:] for row in rows(page.section("Figures").all("table")[0])}
    assert figures["throughput"] == ["6 records/s", "3 records/s", f"2.00{TIMES} better"]
    assert figures["data"][2] == f"1.01{TIMES} alike"
    assert figures["latency p50"][2] == f"1.00{TIMES} alike"
    assert figures["gap after a fault"] == ["\N{EN DASH}", "270 ms", ""]
    assert rows(page.section("Settings that differ").all("table")[0]) == [["records", "24", "12"]]
    assert rows(page.section("Settings and versions").all("table")[0])[0] == ["records", "24", "12"]
    for title in ("Throughput", "Latency over time"):
        first, second = (svg for svg in page.section(title).all("svg") if svg.attributes.get("role") == "img")
        ticks = [
            [(t.text, t.attributes["x"], t.attributes.get("class")) for t in svg.all("text", "tick")]
            for svg in (first, second)
        ]
        assert ticks[0] == ticks[1]
        assert "30 s" in [text for text, *_ in ticks[0]]
    assert len(page.section("Latency by percentile").all("svg")[2].all("path", "line")) == 2


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path / where / "run", whole()) for where in ("varve", "kafka"))
    page = report(one, "--compare", other)
    assert "varve/run" in page.all("h1")[0].text
    assert "kafka/run" in page.all("h1")[0].text


def test_a_fault_test_is_a_page_with_each_scenario_and_a_table_of_all(tmp_path: Path) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    write_run(folder / "kill-each", whole(fault=fault_section()))
    write_run(folder / "restart-all", {"load": load_section()})
    (folder / "spark.log").touch()
    page = report(folder)
    overview = rows(page.section("Overview").all("table")[0])
    assert overview == [
        ["kill-each", "12 of 12", "270 ms", "3 of 3"],
        ["restart-all", "12 of 12", "980 ms", "not verified"],
    ]
    targets = [link.attributes["href"] for link in page.all("a")]
    assert targets == [f"#{article.attributes['id']}" for article in page.all("article")]


def test_an_experiment_needs_no_load(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(sweep()))
    page = report(folder)
    assert page.all("h1")[0].text == "Density of batches"
    shown = page.section("Experiment")
    assert [title.text for title in shown.all("h3")] == [
        "Density by linger.ms",
        "Throughput by acks",
        "Measured beside the model",
    ]
    [measured] = [table for table in shown.all("table") if "Measured" in table.all("caption")[0].text]
    assert [cell.text for cell in measured.all("thead")[0].all("th")] == [
        "linger.ms, ms",
        "density, records",
        "full",
    ]
    assert rows(measured) == [["0", "1.25", "no"], ["5", "25", "no"], ["50", "120", "yes"]]
    wide = shown.all("div", "wide")
    assert [len(wide[0].all("path", "dot")), len(wide[0].all("path", "model"))] == [3, 1]
    assert [tick.text for tick in wide[1].all("text", "middle")] == ["0", "1", "all"]


def test_experiments_of_two_systems_share_their_axes(tmp_path: Path) -> None:
    for name, factor in (("varve", 1), ("kafka", 10)):
        content = sweep()
        for series in content["plots"][1]["series"]:
            series["points"] = [[at, value * factor] for at, value in series["points"]]
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text(json.dumps(content))
    page = report(tmp_path / "varve", "--compare", tmp_path / "kafka")
    plots = [svg for svg in page.section("Experiment").all("svg") if svg.attributes.get("role") == "img"]
    assert [plot.all("title")[0].text for plot in plots] == ["varve", "kafka"] * 2
    low, high = ([tick.text for tick in plot.all("text", "end")] for plot in plots[2:])
    assert low == high
    assert "600" in low


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "sweep.json: format is 2"),
        ({"plots": 3}, "sweep.json.plots: not a list"),
        ({"plots": [{"title": "t"}]}, "sweep.json.plots[0]: 'x' is missing"),
        (
            {"tables": [{"title": "t", "columns": [{"name": "a"}], "rows": [[1, 2]]}]},
            "rows[0]: 2 cells for 1 columns",
        ),
        ({"title": None}, "sweep.json.title: not a text"),
    ],
)
def test_an_experiment_that_is_not_in_the_format_is_told_where(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(sweep() | change))
    result = run_command(tmp_path)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_no_run_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("empty", "broken", "list", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "list" / "config.json").write_text("[]")
    (tmp_path / "other" / "config.json").write_text('{"spec": 5}')
    said = {
        "nowhere": "is not a folder",
        "file": "is not a folder",
        "empty": "is not the folder of a run",
        "broken": "config.json is not JSON",
        "list": "config.json does not hold a JSON object",
        "other": "config.json: 'spec' is not an object",
    }
    for name, text in said.items():
        result = run_command(tmp_path / name)
        assert result.exit_code == 2
        assert text in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_summary_that_lacks_what_every_version_wrote_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", whole())
    summary = json.loads((folder / "summary.json").read_text())
    del summary["verify"]["checks"][0]["status"]
    (folder / "summary.json").write_text(json.dumps(summary))
    result = run_command(folder)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "a section of summary.json or config.json lacks 'status'" in result.stderr


def test_without_the_extra_a_command_says_what_to_install(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    code = (
        "import sys; sys.modules['pyarrow'] = None; sys.argv = ['pipeline', 'report', sys.argv[1]];"
        "from pipeline.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "pip install 'varve[spark,jre]'" in done.stderr


def test_a_file_that_cannot_be_written_or_read_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    result = run_command(folder, "--out", tmp_path / "nowhere" / "r.html")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "cannot be written" in result.stderr
    (folder / "latency.parquet").write_bytes(b"not parquet")
    result = run_command(folder)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "cannot be read" in result.stderr


def test_reading_a_run_starts_no_spark(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", whole())
    code = (
        "import sys; from pathlib import Path; from pipeline.report.command import write_report;"
        f"write_report(Path({str(folder)!r})); sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
