"""HTML and SVG that cannot be broken by what they say: text is escaped unless an element made it."""

from __future__ import annotations

import re
from html import escape


class Html(str):
    """Markup, as opposed to text: only `element` and `join` make it, and only it goes into a page as it is."""

    __slots__ = ()


Child = str | None
"""Html, or text that is escaped; None is nothing."""

# What HTML cannot hold (control characters, halves of a pair), and what would turn the direction of the text around it.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_VOID = {"meta", "link", "br"}


def element(tag: str, attributes: dict[str, str | float | None] | None = None, *children: Child) -> Html:
    """`attributes`: a value of None leaves the attribute out; a number is written with at most two decimals."""
    written = "".join(
        f' {name}="{_text(number(value) if isinstance(value, int | float) else value)}"'
        for name, value in (attributes or {}).items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: Child) -> Html:
    return Html(
        "".join(child if isinstance(child, Html) else _text(child) for child in children if child is not None)
    )


def _text(text: str) -> str:
    return escape(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text))


def number(value: float) -> str:
    """As few digits as a hundredth of a pixel needs."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
