"""The queries of monitoring/, and the names in them.

Not a parser of PromQL: it finds metrics, labels and functions by what follows a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parents[2] / "monitoring"
RULES = FOLDER / "alerts.yml"
DASHBOARD = FOLDER / "grafana" / "varve.json"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9][\w.]*|\[[^\]]*\]|\S')
_WORD = re.compile(r"[a-zA-Z_:]")
#: What may follow an aggregation or an operator, with labels in parentheses.
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


class Query(NamedTuple):
    where: str
    text: str
    legend: str = ""


@dataclass
class Names:
    """Of one query."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    """Metric -> the labels that are asked of it."""
    grouping: set[str] = field(default_factory=set)
    """The labels by which results are grouped or matched."""


def names_in(query: str) -> Names:
    names = Names()
    tokens = _TOKEN.findall(query)
    at = 0
    while at < len(tokens):
        word, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        at += 1
        if not _WORD.match(word) or word in _OPERATORS or following in ("by", "without"):
            continue
        if word in _GROUPING:
            end = tokens.index(")", at)
            names.grouping |= {token for token in tokens[at:end] if _WORD.match(token)}
            at = end
        elif following == "{":
            end = tokens.index("}", at)
            labels = {token for token in tokens[at:end] if _WORD.match(token)}
            names.metrics.setdefault(word, set()).update(labels)
            at = end
        elif following != "(":
            names.metrics.setdefault(word, set())
    return names


def alert_rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> Iterator[Query]:
    for rule in alert_rules():
        yield Query(rule["alert"], rule["expr"])


def panels() -> Iterator[Query]:
    """Of the dashboard, with all instances and topics chosen."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m")
            text = text.replace("$instance", ".*").replace("$topic", ".*")
            assert "$" not in text, text
            yield Query(panel["title"], text, target["legendFormat"])


def labels_in_legend(legend: str) -> set[str]:
    return set(re.findall(r"{{\s*(\w+)\s*}}", legend))
