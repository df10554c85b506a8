"""How the site is made of the repository: hooks for mkdocs (mkdocs.yml).

mkdocs knows one folder of pages. Our pages lie all over the repository, and link to each other, to folders and to
source files by relative paths, which is what a repository's host shows. So every Markdown file becomes a page under
its own path, and every source file that a page links to becomes a page as well, with the lines numbered. A link such
as [`Replica.append`](../broker/replication/replica.py) leads to that method. One page is made here: the help of every
command.
"""

from __future__ import annotations

import ast
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from broker.cli.root import varve

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?P<text>\[[^\]\[]*\])\((?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_NAME = re.compile(r"\[`([\w.]+)`\]")
#: Languages of the highlighter whose name is not the suffix.
_LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml", ".json": "json"}
_LOG = get_plugin_logger("varve")
#: A page that is on the site only: what `varve COMMAND --help` prints.
EVERY_COMMAND = "docs/every-command.md"
_STYLE = "docs/site/site.css"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the theme, and ours instead of those that mkdocs has found in docs/."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    site.append(_file(config, _STYLE, _STYLE, (ROOT / _STYLE).read_text(encoding="utf-8")))
    site.append(_file(config, EVERY_COMMAND, _destination(EVERY_COMMAND), _every_command()))
    sources: set[str] = set()
    for path in sorted(name for name in listing.stdout.splitlines() if (ROOT / name).is_file()):
        text = (ROOT / path).read_text(encoding="utf-8")
        site.append(_file(config, path, _destination(path), text))
        sources.update(target for target in _targets(path, text) if _is_source(target))
    for path in sorted(sources):
        site.append(_file(config, f"{path}.md", f"code/{path}.html", _source_page(path)))
    return site


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to source files and folders lead to the pages that stand for them."""
    origin = page.file.src_uri

    def lead(link: re.Match[str]) -> str:
        target = _resolve(origin, link["path"])
        if target is None:
            return link[0]
        if (ROOT / target).is_dir():
            return f"{link['text']}({_relative(origin, f'{target}/README.md')})"
        if not _is_source(target):
            return link[0]
        return f"{link['text']}({_relative(origin, f'{target}.md')}){_line_mark(target, link['text'])}"

    # What is within a fence is no link.
    parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~)[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if index % 2 else _LINK.sub(lead, part) for index, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts the line behind the links that have one, and says where code in tables may break.

    Within Markdown, mkdocs would not find the anchor of a line, which the highlighter makes.
    """
    _check_lists(page, html)
    html = re.sub(r'(<a )data-line="(\d+)" href="([^"#]+)"', r'\1href="\3#__codelineno-0-\2"', html)
    return re.sub(r"<td>.*?</td>", _breakable, html, flags=re.DOTALL)


def _check_lists(page: Page, html: str) -> None:
    """A repository's host makes a list of lines that mkdocs takes for the rest of a paragraph."""
    wanted = MarkdownIt("commonmark").render(page.markdown or "").count("<li>")
    if (there := html.count("<li>")) != wanted:
        _LOG.warning(
            f"{page.file.src_uri}: {there} of {wanted} items of lists are shown; a list needs an empty line before it"
        )


def _breakable(cell: re.Match[str]) -> str:
    """Where lines may break within code: at no hyphen, which would tear `--topic` apart; within long names at dots."""

    def marked(word: re.Match[str]) -> str:
        if "-" in word[0]:
            return f'<span class="whole">{word[0]}</span>'
        return re.sub(r"[.=]\b", r"\g<0><wbr>", word[0]) if len(word[0]) > 16 else word[0]

    return re.sub(r"(?<=<code>)[^<]+(?=</code>)", lambda code: re.sub(r"\S+", marked, code[0]), cell[0])


def _file(config: MkDocsConfig, path: str, destination: str, content: str) -> File:
    file = File.generated(config, path, content=content)
    file.dest_uri = destination
    return file


def _destination(path: str) -> str:
    """docs/ and the files at the top are the top of the site, everything else is below code/."""
    folder, name = posixpath.split(path)
    if path == "README.md":
        return "index.html"
    if folder in ("", "docs") and name != "README.md":
        return name.lower().removesuffix(".md") + ".html"
    return posixpath.join("code", folder, "index.html" if name == "README.md" else f"{name[:-3]}.html")


def _resolve(origin: str, link: str) -> str | None:
    """The path of a link within the repository; None for another site."""
    if "://" in link or link.startswith("mailto:"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _relative(origin: str, target: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(origin) or ".")


def _targets(origin: str, text: str) -> list[str]:
    found = [_resolve(origin, link["path"]) for link in _LINK.finditer(text)]
    return [target for target in found if target is not None]


def _is_source(path: str) -> bool:
    return not path.endswith(".md") and (ROOT / path).is_file()


def _source_page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    language = _LANGUAGES.get(posixpath.splitext(path)[1], "text")
    head = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n"
    return f'{head}# {path}\n\n~~~~~~ {{.{language} linenums="1"}}\n{text.rstrip()}\n~~~~~~\n'


def _every_command() -> str:
    sections = [
        f"## {context.command_path}\n\n~~~ text\n{context.get_help()}\n~~~\n"
        for context in _contexts(varve, click.Context(varve, info_name="varve", max_content_width=100))
    ]
    return "\n".join(("# Every command\n", *sections))


def _contexts(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Those of the command and of all commands below it, a group before its members."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _contexts(member, click.Context(member, info_name=name, parent=context))


def _line_mark(path: str, text: str) -> str:
    """An attribute for `on_page_content`: the line that defines what the link names; nothing if it names nothing."""
    named = _NAME.fullmatch(text)
    if named is None or not path.endswith(".py"):
        return ""
    scope: ast.Module | ast.ClassDef | ast.FunctionDef = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for part in named[1].split("."):
        definitions = (ast.ClassDef, ast.FunctionDef)
        found = [node for node in scope.body if isinstance(node, definitions) and node.name == part]
        if not found:
            raise PluginError(f"{path} does not define {named[1]}, which a page links to")
        scope = found[0]
    assert not isinstance(scope, ast.Module)
    return f'{{data-line="{scope.lineno}"}}'
