"""Every link of every Markdown file leads somewhere, on a repository's host and on the site. No network is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml

from tests.documents.markdown import Link, anchors, documents, links
from tests.test_tidy import ROOT, tracked

#: Pages that docs/site/hooks.py makes.
MADE_BY_THE_SITE = {"docs/every-command.md"}


def broken(link: Link) -> str:
    """Why a link leads nowhere; empty if it leads somewhere, or to another site."""
    if re.match(r"[a-z]+:", link.target):
        return ""
    path, _, anchor = link.target.partition("#")
    target = (link.document.parent / path).resolve() if path else link.document
    if not target.exists():
        return f"{link}: there is no {path}"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: {target.name} has no heading with the anchor #{anchor}"
    return ""


def test_links_between_documents_lead_somewhere() -> None:
    assert not [why for document in documents() for link in links(document) if (why := broken(link))]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# Do they say the same?\n\n## `log.dirs`\n\n## Twice\n\n## Twice\n")
    page.write_text(
        "[1](other.md) [2](other.md#do-they-say-the-same) [3](other.md#logdirs) [4](other.md#twice-1)\n"
        "[5](https://kafka.apache.org/x#y) `[6](no.md)`\n\n```\n[7](no.md)\n```\n\n"
        "| table |\n|---|\n| [8](other.md#twice-2) |\n\n[9](gone.md) [10](#gone)\n"
    )
    reasons = [why for link in links(page) if (why := broken(link))]
    assert [why.partition(": ")[2] for why in reasons] == [
        "other.md#twice-2: other.md has no heading with the anchor #twice-2",
        "gone.md: there is no gone.md",
        "#gone: page.md has no heading with the anchor #gone",
    ]


def test_documents_link_to_files_of_the_repository_only() -> None:
    """Not to one that is ignored, or beside the checkout: it is on this machine alone."""
    known = {path.resolve() for path in tracked()}
    known |= {folder for path in known for folder in path.parents}
    outside = [
        str(link)
        for document in documents()
        for link in links(document)
        if not re.match(r"[a-z]+:|#", link.target)
        and (document.parent / link.target.partition("#")[0]).resolve() not in known
    ]
    assert not outside


def test_functions_that_documents_link_to_exist() -> None:
    """A link such as [`Replica.append`](../broker/replication/replica.py) names a function or class of that module."""
    link = re.compile(r"\[`([\w.]+)`\]\(([^)#\s]+\.py)\)")
    named = [
        (document, name, (document.parent / target).resolve())
        for document in documents()
        for name, target in link.findall(document.read_text(encoding="utf-8"))
    ]
    assert named, "docs/tour.md links to functions"
    assert not [(str(document), name) for document, name, module in named if not _defines(module, name)]


def _defines(module: Path, name: str) -> bool:
    scope: ast.Module | ast.ClassDef | ast.FunctionDef = ast.parse(module.read_text(encoding="utf-8"))
    for part in name.split("."):
        found = [
            node
            for node in scope.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part
        ]
        if not found:
            return False
        scope = found[0]
    return True


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """mkdocs.yml names a Python function, which only mkdocs has to find."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for item in nav for page in _pages(item if isinstance(nav, list) else nav[item])]


def test_the_menu_of_the_site_has_every_page_of_docs() -> None:
    with (ROOT / "mkdocs.yml").open(encoding="utf-8") as file:
        menu = _pages(yaml.load(file, _Loader)["nav"])
    assert len(set(menu)) == len(menu)
    assert not [page for page in menu if not (ROOT / page).is_file() and page not in MADE_BY_THE_SITE]
    docs = {path.relative_to(ROOT).as_posix() for path in documents(ROOT / "docs")}
    assert docs <= set(menu)
