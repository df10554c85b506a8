"""A verdict as JSON and as text for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.history.checker import Verdict
from tests.history.findings import Finding
from tests.history.operations import lines_of

_SHOWN_OF_EACH_KIND = 10


def report(verdict: Verdict, files: Sequence[Path]) -> dict[str, Any]:
    """The verdict as JSON: all counts, and of each kind the first findings with the lines that prove them."""
    shown: list[Finding] = []
    counts: Counter[str] = Counter()
    for finding in verdict.findings:
        counts[finding.kind.value] += 1
        if counts[finding.kind.value] <= _SHOWN_OF_EACH_KIND:
            shown.append(finding)
    lines = lines_of(files, {position for finding in shown for position in finding.proof}) if shown else {}
    return {
        "valid": verdict.is_valid,
        "operations": verdict.operations,
        "sends": verdict.sends,
        "transactions": verdict.transactions,
        "records_read": verdict.records_read,
        "repeated_by_plain_producers": verdict.repeated_by_plain_producers,
        "counts": dict(counts),
        "findings": [
            {
                "kind": finding.kind.value,
                "topic": finding.place and finding.place[0],
                "partition": finding.place and finding.place[1],
                "offset": finding.offset,
                "what": finding.what,
                "proof": [{"line": lines[p][0], "operation": json.loads(lines[p][1])} for p in finding.proof],
            }
            for finding in shown
        ],
    }


def as_text(document: dict[str, Any]) -> str:
    """The report for people."""
    sends = document["sends"]
    lines = [
        f"{document['operations']:,} operations: {sends['ok']:,} sends acknowledged, {sends['failed']:,} failed, "
        f"{sends['unknown']:,} unknown; {document['records_read']:,} records read"
    ]
    transactions = document["transactions"]
    if any(transactions.values()):
        lines.append(
            f"transactions: {transactions['ok']:,} committed, {transactions['failed']:,} aborted, "
            f"{transactions['unknown']:,} unknown"
        )
    for finding in document["findings"]:
        place = "" if finding["topic"] is None else f" {finding['topic']}-{finding['partition']}"
        offset = "" if finding["offset"] is None else f"@{finding['offset']}"
        lines.append(f"{finding['kind']}{place}{offset}: {finding['what']}")
        lines += [f"    {proof['line']}: {_short(proof['operation'])}" for proof in finding["proof"]]
    for kind, count in document["counts"].items():
        more = f", the first {_SHOWN_OF_EACH_KIND} above" if count > _SHOWN_OF_EACH_KIND else ""
        lines.append(f"{kind}: {count:,}{more}")
    lines.append("no violation" if document["valid"] else "VIOLATED")
    return "\n".join(lines)


def _short(operation: dict[str, Any]) -> str:
    """The operation on one line; of many records only the count (the file has them all)."""
    records = operation.get("records")
    if records is not None and len(records) > 3:
        operation = {**operation, "records": f"{len(records)} records"}
    return json.dumps(operation)
