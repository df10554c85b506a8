"""What the tests want to know of a Markdown file: its links, its anchors, its blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.test_tidy import ROOT, tracked

_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True)
class Link:
    document: Path
    target: str
    """As it is written: `settings.md#limits`, `#limits`, `https://...`."""

    def __str__(self) -> str:
        return f"{self.document}: {self.target}"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    document: Path
    line: int
    language: str
    text: str


def documents(root: Path = ROOT) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md" and path.is_relative_to(root)]


@cache
def _tokens(document: Path) -> tuple[Token, ...]:
    return tuple(_PARSER.parse(document.read_text(encoding="utf-8")))


def links(document: Path) -> Iterator[Link]:
    """Links and images, outside of code."""
    for token in _tokens(document):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield Link(document, str(target))


def code_spans(document: Path) -> Iterator[str]:
    for token in _tokens(document):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def blocks(document: Path) -> Iterator[Block]:
    for token in _tokens(document):
        if token.type == "fence" and token.map is not None:
            yield Block(document, token.map[0] + 1, token.info.strip(), token.content)


def table_cells(document: Path) -> Iterator[list[Token]]:
    """The content of each cell of each table, row by row, headers left out."""
    tokens = _tokens(document)
    for index, token in enumerate(tokens):
        if token.type == "td_open":
            yield tokens[index + 1].children or []


def anchors(document: Path) -> set[str]:
    """The anchors that a repository's host gives to headings. The site gives the same ones (mkdocs.yml, slugify)."""
    found: set[str] = set()
    tokens = _tokens(document)
    for index, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        words = "".join(child.content for child in tokens[index + 1].children or ())
        slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        # A heading that is there again gets a number.
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found
