"""Whether a `varve` command line exists: its commands and options, and the number of its arguments.

Values are not looked at: documents write T, N and FILE where users fill in their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from broker.cli.root import varve


class NoSuchCommandLine(Exception):
    """The command line is not one that `varve` takes; the text says why."""


def check(line: str, *, mention: bool = False) -> None:
    """Raises NoSuchCommandLine if `varve` does not take this line.

    A mention in a sentence may end early: with a group of commands, or before something that is required.
    """
    words = shlex.split(line)
    assert words[0] == "varve"
    command: click.Command = varve
    context = click.Context(command, info_name="varve")
    words = words[1:]
    while isinstance(command, click.Group):
        if not words:
            if mention or command.invoke_without_command:
                return
            raise NoSuchCommandLine(f"{line}: {context.command_path} needs a command")
        if words[0].startswith("-"):
            break
        found = command.get_command(context, words[0])
        if found is None:
            if command.invoke_without_command:
                break
            raise NoSuchCommandLine(f"{line}: {context.command_path} has no command {words[0]}")
        command, context = found, click.Context(found, info_name=words[0], parent=context)
        words = words[1:]
    _check_options(command, context, words, line, mention)


def _check_options(
    command: click.Command, context: click.Context, words: list[str], line: str, mention: bool
) -> None:
    # The option that a sentence is about may stand at the end, without its value.
    ends_with_an_option = mention and any(words[-1:] == [name] for name in _options_with_a_value(command))
    try:
        given, left, _ = command.make_parser(context).parse_args(words + ["..."] * ends_with_an_option)
    except click.UsageError as error:
        raise NoSuchCommandLine(f"{line}: {error.format_message()}") from error
    if left:
        raise NoSuchCommandLine(f"{line}: {context.command_path} takes no {left[0]}")
    # click marks what was not given by an object of its own, or by None.
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.required and not isinstance(given.get(parameter.name or ""), str | tuple | list)
    ]
    if missing and not mention:
        raise NoSuchCommandLine(f"{line}: {missing[0]} is missing")


def _options_with_a_value(command: click.Command) -> list[str]:
    options = [each for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    return [name for option in options for name in option.opts]


def command_lines(script: str) -> Iterator[str]:
    """The `varve` commands in lines of shell: behind pipes, in substitutions, after variables."""
    for line in script.replace("\\\n", " ").splitlines():
        for piece in re.split(r"\|\||&&|[|;&(]|\$\(", _without_comment(line)):
            command = re.sub(r"^(\s*\w+=\S*)*\s*\$?\s*(\S*/)?(?=varve\s)", "", piece)
            if command.startswith("varve ") and "`" not in command:
                yield re.sub(r"[<>].*|\)\s*\"?$", "", command).strip()


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line)
