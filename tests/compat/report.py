"""What the suites found: kept as JSON, case by case and broker by broker, and written as the tables of RESULTS.md."""

from __future__ import annotations

import enum
import fcntl
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
JSON_NAME = "results.json"
DOCUMENT_NAME = "RESULTS.md"
#: The broker that everything is compared with, and ours.
KAFKA = "Apache Kafka 4.3.1"
VARVE = "Varve"
MAX_NOTE_CHARS = 240
#: What is behind a case that fails, by suite and case, found by a person: causes.toml.
CAUSES: dict[str, dict[str, str]] = tomllib.loads((HERE / "causes.toml").read_text(encoding="utf-8"))


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    #: The suite itself, or its client, says that it does not apply.
    SKIPPED = "skipped"
    #: We do not run it; `note` says for what reason.
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a suite against one broker.

    `note` says why it did not pass, or a figure. `commit` is that of our checkout; empty for other brokers.
    """

    name: str
    outcome: Outcome
    note: str = ""
    seconds: float = 0.0
    commit: str = ""


@dataclass(slots=True)
class SuiteResult:
    """All that is known of one suite against one broker. `missing`: why it could not be run here, or empty."""

    suite: str
    client: str
    date: str
    missing: str = ""
    cases: dict[str, Case] = field(default_factory=dict)

    def count(self, outcome: Outcome) -> int:
        return sum(case.outcome is outcome for case in self.cases.values())


#: By broker, then by suite.
Results = dict[str, dict[str, SuiteResult]]


def short(note: str) -> str:
    """One line that fits into a table."""
    line = " ".join(note.split()).replace("|", "/")
    return line if len(line) <= MAX_NOTE_CHARS else line[: MAX_NOTE_CHARS - 3] + "..."


def load(path: Path) -> Results:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = json.loads(text) if text else {}
    return {
        broker: {
            suite: SuiteResult(
                **{key: value for key, value in result.items() if key != "cases"},
                cases={
                    name: Case(**{**case, "name": name, "outcome": Outcome(case["outcome"])})
                    for name, case in result["cases"].items()
                },
            )
            for suite, result in suites.items()
        }
        for broker, suites in kept.items()
    }


def save(results: Results, path: Path) -> None:
    kept = {
        broker: {suite: _as_json(result) for suite, result in sorted(suites.items())}
        for broker, suites in sorted(results.items())
    }
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _as_json(result: SuiteResult) -> dict[str, object]:
    cases = {
        name: {key: value for key, value in asdict(case).items() if key != "name"}
        for name, case in sorted(result.cases.items())
    }
    return {**{key: value for key, value in asdict(result).items() if key != "cases"}, "cases": cases}


def merge(results: Results, broker: str, found: SuiteResult) -> None:
    """Add what a run found. A run of single cases replaces just those; a suite that could not run keeps older ones."""
    known = results.setdefault(broker, {}).get(found.suite)
    if known is not None and known.client == found.client:
        found = SuiteResult(
            found.suite, found.client, found.date, found.missing, {**known.cases, **found.cases}
        )
    elif known is not None and found.missing:
        found = SuiteResult(known.suite, known.client, known.date, found.missing, known.cases)
    results[broker][found.suite] = found


def keep(folder: Path, broker: str, found: SuiteResult) -> None:
    """Add what a run found to the files. Runs against several clusters may do so at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / JSON_NAME
    with kept.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = load(kept)
        merge(results, broker, found)
        save(results, kept)
        (folder / DOCUMENT_NAME).write_text(render(results), encoding="utf-8")


# -- the document --------------------------------------------------------------------------------------------


def render(results: Results) -> str:
    """RESULTS.md: the table, every case that differs from Kafka's, what is left out and why, and the lists."""
    suites = sorted({suite for of_broker in results.values() for suite in of_broker})
    sections = [
        "# Clients and other projects' suites against Varve\n\n"
        "Written by `scripts/compat` from `results.json`; do not edit. How to repeat it: [README.md](README.md).\n",
        _summary(results, suites),
        *(_suite_section(suite, results) for suite in suites),
    ]
    return "\n".join(sections)


def _summary(results: Results, suites: Iterable[str]) -> str:
    rows = []
    for suite in suites:
        for broker in (VARVE, KAFKA):
            found = results.get(broker, {}).get(suite)
            if found is None:
                continue
            counts = [str(found.count(outcome)) for outcome in Outcome]
            note = [found.missing] if found.missing else []
            failed = [name for name, case in found.cases.items() if case.outcome is Outcome.FAILED]
            note += [", ".join(failed[:4]) + (f" and {len(failed) - 4} more" if len(failed) > 4 else "")]
            rows.append([suite, found.client, broker, *counts, found.date, _commits(found), "; ".join(note)])
    return _table(["suite", "client", "broker", *Outcome, "date", "commit", "failed, or why not run"], rows)


def _commits(found: SuiteResult) -> str:
    commits = Counter(case.commit for case in found.cases.values() if case.commit)
    if not commits:
        return ""
    (commit, _) = commits.most_common(1)[0]
    return commit if len(commits) == 1 else f"{commit} and {len(commits) - 1} others"


def _suite_section(suite: str, results: Results) -> str:
    ours = results.get(VARVE, {}).get(suite)
    theirs = results.get(KAFKA, {}).get(suite)
    names = sorted({name for found in (ours, theirs) if found for name in found.cases})
    rows = []
    for name in names:
        pair = [found.cases.get(name) if found else None for found in (ours, theirs)]
        rows.append([name, *(_outcome(case) for case in pair), _why(suite, name, pair)])
    return f"## {suite}\n\n" + _table(["case", VARVE, KAFKA, "why"], rows)


def _why(suite: str, name: str, pair: Sequence[Case | None]) -> str:
    """The cause that somebody found, then what each side said; once where both said the same."""
    sides = {
        broker: case.note for broker, case in zip((VARVE, KAFKA), pair, strict=True) if case and case.note
    }
    said = [*sides.values()]
    if len(sides) == 2 and len(set(said)) > 1:
        said = [f"{broker}: {short(note)}" for broker, note in sides.items()]
    has_failed = any(case and case.outcome is Outcome.FAILED for case in pair)
    cause = [CAUSES.get(suite, {}).get(name, "")] if has_failed else []
    return "; ".join(dict.fromkeys(filter(None, [*cause, *said])))


def _outcome(case: Case | None) -> str:
    if case is None:
        return "not run"
    return f"**{case.outcome}**" if case.outcome is Outcome.FAILED else str(case.outcome)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(header)
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def differences(results: Mapping[str, Mapping[str, SuiteResult]]) -> list[str]:
    """Cases that pass on Kafka and fail on Varve: suite and name."""
    found = []
    for suite, theirs in sorted(results.get(KAFKA, {}).items()):
        ours = results.get(VARVE, {}).get(suite)
        found += [
            f"{suite}: {name}"
            for name, case in theirs.cases.items()
            if case.outcome is Outcome.PASSED
            and ours is not None
            and (other := ours.cases.get(name)) is not None
            and other.outcome is Outcome.FAILED
        ]
    return found
