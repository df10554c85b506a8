"""Regular expressions in RE2's syntax, as trees: what `broker.groups.topic_pattern` can match in linear time.

Back-references and look-around, which cannot be matched so, are errors as in RE2; so are Unicode classes (\\p), which
no topic name needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_LENGTH = 1_000
MAX_DEPTH = 50
MAX_REPEAT = 1_000
"""In {n,m}: RE2's."""
_ASCII_END = 128


class PatternError(ValueError):
    """Not an expression, or too large a one."""


# -- the tree --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CharSet:
    ranges: tuple[tuple[int, int], ...]
    """Of code points, both ends included."""
    negated: bool = False
    _ascii: int = field(init=False, repr=False, compare=False, default=0)
    """Bit by code point, which ASCII characters are in. Topic names have no others, and whoever counts the work of a
    match counts a class as one step: so it must be one, however many ranges stand in it."""

    def __post_init__(self) -> None:
        bits = 0
        for first, last in self.ranges:
            if first < _ASCII_END:
                bits |= (1 << min(last + 1, _ASCII_END)) - (1 << first)
        object.__setattr__(self, "_ascii", ~bits if self.negated else bits)

    @property
    def is_one(self) -> bool:
        return len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] and not self.negated

    def __contains__(self, char: str) -> bool:
        code = ord(char)
        if code < _ASCII_END:
            return bool(self._ascii >> code & 1)
        return any(first <= code <= last for first, last in self.ranges) != self.negated


class Cat(NamedTuple):
    nodes: tuple[Node, ...]


class Alt(NamedTuple):
    nodes: tuple[Node, ...]


class Repeat(NamedTuple):
    node: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """`holds(before, after)`: the characters on both sides, "" at an end."""

    holds: Callable[[str, str], bool]


Node = CharSet | Cat | Alt | Repeat | Edge

_DIGIT = ((48, 57),)
_SPACE = ((9, 10), (12, 13), (32, 32))
_LOWER, _UPPER = ((97, 122),), ((65, 90),)
_WORD = (*_DIGIT, *_UPPER, (95, 95), *_LOWER)
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": (*_DIGIT, *_UPPER, *_LOWER),
    "alpha": (*_UPPER, *_LOWER),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": _LOWER,
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": (*_DIGIT, (65, 70), (97, 102)),
}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_WORD_SET = CharSet(_WORD)


def is_word(char: str) -> bool:
    return char != "" and char in _WORD_SET


_EDGES = {
    "^": Edge(lambda before, after: not before),
    "$": Edge(lambda before, after: not after),
    "A": Edge(lambda before, after: not before),
    "z": Edge(lambda before, after: not after),
    "b": Edge(lambda before, after: is_word(before) != is_word(after)),
    "B": Edge(lambda before, after: is_word(before) == is_word(after)),
}


# -- the syntax ------------------------------------------------------------------------------------------------


def parse(text: str) -> Node:
    """Raises PatternError."""
    if len(text) > MAX_LENGTH:
        raise PatternError(f"longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ignore_case = False
        self._depth = 0

    def parse(self) -> Node:
        node = self._alternatives()
        if self._position < len(self._text):
            raise PatternError("a ) without its (")
        return node

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self, missing: str) -> str:
        char = self._peek()
        if not char:
            raise PatternError(missing)
        self._position += 1
        return char

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    def _alternatives(self) -> Node:
        ignore_case = self._ignore_case  # what (?i) sets holds to the end of its group
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._ignore_case = ignore_case
        return branches[0] if len(branches) == 1 else Alt(tuple(branches))

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            self._position += 1
            if char == "\\" and self._take("Q"):
                nodes.extend(self._quoted())
            elif (node := self._atom(char)) is not None:
                nodes.append(node)
            else:
                continue
            if nodes:
                nodes[-1] = self._repeated(nodes[-1])
        return nodes[0] if len(nodes) == 1 else Cat(tuple(nodes))

    def _quoted(self) -> list[Node]:
        text, _, _ = self._text[self._position :].partition("\\E")
        self._position = min(self._position + len(text) + 2, len(self._text))
        return [self._literal(each) for each in text]

    def _atom(self, char: str) -> Node | None:
        """None: flags, which are nothing by themselves."""
        match char:
            case "(":
                return self._group()
            case "[":
                return self._folded(self._brackets())
            case ".":
                return CharSet(((10, 10),), negated=True)
            case "^" | "$":
                return _EDGES[char]
            case "\\":
                escaped = self._next("a \\ at the end")
                return _EDGES[escaped] if escaped in "AzbB" else self._folded(self._escape(escaped))
            case "*" | "+" | "?":
                raise PatternError(f"nothing that {char} could repeat")
        return self._literal(char)

    def _literal(self, char: str) -> Node:
        return self._folded(CharSet(((ord(char), ord(char)),)))

    def _folded(self, chars: CharSet) -> CharSet:
        if not self._ignore_case:
            return chars
        ranges = list(chars.ranges)
        for first, last in chars.ranges:
            for (low, high), other in ((_UPPER[0], 32), (_LOWER[0], -32)):
                if max(first, low) <= min(last, high):
                    ranges.append((max(first, low) + other, min(last, high) + other))
        return CharSet(tuple(ranges), chars.negated)

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"nested more than {MAX_DEPTH} deep")
        before = self._ignore_case
        if self._take("?"):
            if self._take("P<") or (self._peek() == "<" and self._text[self._position + 1 :][:1] not in "=!"):
                self._take("<")
                end = self._text.find(">", self._position)
                if end < 0 or not self._text[self._position : end].isidentifier():
                    raise PatternError("not a name of a group")
                self._position = end + 1
            elif self._flags() == ")":
                self._depth -= 1
                return None
        node = self._alternatives()
        self._ignore_case = before
        self._depth -= 1
        if not self._take(")"):
            raise PatternError("a ( without its )")
        return node

    def _flags(self) -> str:
        """Reads `i:` or `i-s)`. Only the case matters where a whole name without line ends is matched."""
        on = True
        while True:
            flag = self._next("a ( without its )")
            if flag in ":)":
                return flag
            if flag == "-" and on:
                on = False
            elif flag == "i":
                self._ignore_case = on
            elif flag not in "smU":
                raise PatternError(f"(?{flag} is not supported")

    def _escape(self, char: str) -> CharSet:
        if char.lower() in _PERL:
            return CharSet(_PERL[char.lower()], negated=char.isupper())
        if char == "x":
            braces = self._take("{")
            end = self._text.find("}", self._position) if braces else self._position + 2
            digits = self._text[self._position : end] if end >= 0 else ""
            if (
                not digits
                or any(digit not in "0123456789abcdefABCDEF" for digit in digits)
                or len(digits) > 6
            ):
                raise PatternError("not a hexadecimal number behind \\x")
            self._position = end + braces
            return CharSet(((int(digits, 16), int(digits, 16)),))
        code = _CONTROL.get(char)
        if code is None:
            if char.isalnum() or not char.isascii():
                raise PatternError(f"\\{char} is not supported")
            code = ord(char)
        return CharSet(((code, code),))

    def _brackets(self) -> CharSet:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._take("[:"):
                ranges.extend(self._posix())
                continue
            chars = self._bracket_char()
            if self._peek() == "-" and self._text[self._position + 1 :][:1] not in ("]", ""):
                self._position += 1
                last = self._bracket_char()
                if not (chars.is_one and last.is_one and chars.ranges[0] <= last.ranges[0]):
                    raise PatternError("not a range of characters")
                ranges.append((chars.ranges[0][0], last.ranges[0][1]))
            else:
                ranges.extend(_complement(chars.ranges) if chars.negated else chars.ranges)
        self._position += 1
        return CharSet(tuple(ranges), negated)

    def _bracket_char(self) -> CharSet:
        char = self._next("a [ without its ]")
        if char == "\\":
            return self._escape(self._next("a \\ at the end"))
        return CharSet(((ord(char), ord(char)),))

    def _posix(self) -> tuple[tuple[int, int], ...]:
        end = self._text.find(":]", self._position)
        name = self._text[self._position : max(end, self._position)]
        if name.lstrip("^") not in _POSIX:
            raise PatternError("not a class of characters: [:...:]")
        self._position = end + 2
        ranges = _POSIX[name.lstrip("^")]
        return _complement(ranges) if name.startswith("^") else ranges

    def _repeated(self, node: Node) -> Node:
        bounds = self._repetition()
        if bounds is None:
            return node
        self._take("?")  # lazy or not matters to what a part matches, not to whether the whole does
        if self._repetition() is not None:
            raise PatternError("a repetition of a repetition")
        return Repeat(node, *bounds)

    def _repetition(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        bounds = simple.get(self._peek())
        if bounds is not None:
            self._position += 1
            return bounds
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._position)
        least, comma, most = self._text[self._position + 1 : max(end, 0)].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            return None  # a { is itself then
        bounds = int(least), int(least) if not comma else int(most) if most else None
        if bounds[0] > MAX_REPEAT or (bounds[1] is not None and not bounds[0] <= bounds[1] <= MAX_REPEAT):
            raise PatternError("not a number of repetitions")
        self._position = end + 1
        return bounds


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _complement(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    result = []
    next_code = 0
    for first, last in sorted(ranges):
        if first > next_code:
            result.append((next_code, first - 1))
        next_code = max(next_code, last + 1)
    return (*result, (next_code, 0x10FFFF))
