"""The tables of docs/settings-reference.md. `python -m tests.documents.settings_page` writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from broker.config.group_config import GroupConfig
from broker.config.node_config import NodeConfig
from broker.config.topic_config import TopicConfig
from broker.config.values import Key, keys_of
from tests.test_tidy import ROOT

PAGE = ROOT / "docs" / "settings-reference.md"
_BEGIN = "<!-- settings: written by tests/documents/settings_page.py -->\n"
_END = "<!-- end of settings -->\n"
_NO_LIMIT = {str(2**31 - 1), str(2**63 - 1), "1.7976931348623157E308"}
_BYTES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
#: By the end of a name: units of its values, the largest first.
_UNITS = {
    ".ms": (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)),
    ".minutes": (("d", 1_440),),
    ".bytes": _BYTES,
    ".size": _BYTES,
    ".bytes.per.second": tuple((f"{name}/s", size) for name, size in _BYTES),
}


def tables() -> str:
    """A section for each class that declares settings, in the order in which a node's are combined."""
    sections = {"Topics": TopicConfig, "Groups of the consumer protocol": GroupConfig}
    sections |= {f"Nodes: {_subject(part)}": part for part in reversed(NodeConfig.__bases__)}
    return "\n".join(f"## {title}\n\n{_table(keys_of(part).values())}" for title, part in sections.items())


def _subject(part: type) -> str:
    """What the module of the class says that it is about."""
    sentence = (sys.modules[part.__module__].__doc__ or "").partition(". ")[0].strip().rstrip(".")
    assert sentence, part
    return sentence[0].lower() + sentence[1:]


def _table(keys: Iterable[Key]) -> str:
    return "".join(
        f"{row}\n" for row in ("| setting | default | meaning |", "|---|---|---|", *map(_row, keys))
    )


def _row(key: Key) -> str:
    default = f"`{key.default}`{_in_words(key)}" if key.default else "none"
    default = "no limit" if key.default in _NO_LIMIT else default
    meaning = " ".join((key.doc, *_notes(key))).replace("|", "\\|")
    return f"| `{key.name}` | {default} | {meaning} |"


def _in_words(key: Key) -> str:
    """A large number once more, as people say it: ` (7 d)`. Empty for others."""
    units = next((units for end, units in _UNITS.items() if key.name.endswith(end)), ())
    for name, size in units:
        if key.default.isdecimal() and int(key.default) >= size and int(key.default) % size == 0:
            return f" ({int(key.default) // size} {name})"
    return ""


def _notes(key: Key) -> Iterator[str]:
    if key.scaled:
        yield f"Also {', '.join(f'`{name}`' for name, _ in key.scaled)}."
    if key.is_dynamic:
        yield "*Dynamic.*"


def with_tables(page: str) -> str:
    """Raises ValueError if the page has no place for them."""
    begin, end = page.index(_BEGIN) + len(_BEGIN), page.index(_END)
    return f"{page[:begin]}\n{tables()}\n{page[end:]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
