"""Regular expressions over topic names, with RE2's guarantee: time grows with the name's length only.

Clients send them (KIP-848), so Python's `re` will not do: it tries alternatives one after the other, and a short
expression can make that take years. Here all alternatives are followed at once; a set of them, once seen, is a state
with a number, and a name then costs one look-up per character.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.groups.pattern_syntax import Alt, Cat, CharSet, Edge, Node, PatternError, Repeat, is_word, parse

__all__ = ["PatternError", "TopicPattern"]

MAX_INSTRUCTIONS = 1_000
"""Of a compiled expression; repetition multiplies."""
_MAX_KEPT = 50_000
"""Instructions of the states kept at a time, and steps between them, some 60 bytes each: then they are forgotten, and
found anew."""


# -- instructions ----------------------------------------------------------------------------------------------


class _Split(NamedTuple):
    """Go on at all of these."""

    targets: tuple[int, ...]


class _Match(NamedTuple):
    pass


_Instruction = CharSet | Edge | _Split | _Match


def _size(node: Node) -> int:
    """Instructions that a node takes; raises PatternError as soon as they are too many."""
    match node:
        case Cat(nodes) | Alt(nodes):
            size = sum(map(_size, nodes)) + len(nodes) + 1
        case Repeat(inner, least, most):
            size = (_size(inner) + 2) * max(least + (most is None), most or 0, 1)
        case _:
            size = 1
    if size > MAX_INSTRUCTIONS:
        raise PatternError("too large")
    return size


def _emit(node: Node, out: list[_Instruction]) -> None:
    match node:
        case Cat(nodes):
            for each in nodes:
                _emit(each, out)
        case Alt(nodes):
            split = len(out)
            out.append(_Match())  # both are put in their places below
            starts, ends = [], []
            for each in nodes:
                starts.append(len(out))
                _emit(each, out)
                ends.append(len(out))
                out.append(_Match())
            out[split] = _Split(tuple(starts))
            for end in ends:
                out[end] = _Split((len(out),))
        case Repeat(inner, least, most):
            for _ in range(least):
                _emit(inner, out)
            if most is None:
                split = len(out)
                out.append(_Match())
                _emit(inner, out)
                out.append(_Split((split,)))
                out[split] = _Split((split + 1, len(out)))
                return
            splits = []
            for _ in range(most - least):
                splits.append(len(out))
                out.append(_Match())
                _emit(inner, out)
            for split in splits:
                out[split] = _Split((split + 1, len(out)))
        case _:
            out.append(node)


# -- matching --------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where to go on, before what comes next is known; `before` is the last character as far as edges care."""

    at: frozenset[int]
    before: str


class TopicPattern:
    """A compiled expression. Raises PatternError."""

    def __init__(self, text: str) -> None:
        tree = parse(text)
        _size(tree)
        self._program: list[_Instruction] = []
        _emit(tree, self._program)
        self._program.append(_Match())
        self._start = _State(frozenset((0,)), "")
        self.work = 0
        """Instructions looked at so far, some 0.5 us each: whoever has many names to match can see what it costs."""
        self._forget()

    def _forget(self) -> None:
        self._states: list[_State] = [self._start]
        self._numbers: dict[_State, int] = {self._start: 0}
        #: Instructions in `_states`, and entries of `_steps`.
        self._kept = 0
        #: Number of the state, character -> number of the next state.
        self._steps: dict[tuple[int, str], int] = {}
        self._accepting: dict[int, bool] = {}

    def matches(self, name: str) -> bool:
        """The whole name, as Kafka does."""
        number = 0
        for char in name:
            after = self._steps.get((number, char))
            number = self._step(number, char) if after is None else after
        accepting = self._accepting.get(number)
        if accepting is None:
            state = self._states[number]
            accepting = any(isinstance(self._program[each], _Match) for each in self._reached(state, ""))
            self._accepting[number] = accepting
        return accepting

    def _step(self, number: int, char: str) -> int:
        state = self._states[number]
        at = frozenset(
            each + 1
            for each in self._reached(state, char)
            if isinstance(waits := self._program[each], CharSet) and char in waits
        )
        following = _State(at, "a" if is_word(char) else " ")
        if self._kept >= _MAX_KEPT:
            self._forget()
            number = self._number(state)
        after = self._number(following)
        self._steps[number, char] = after
        self._kept += 1
        return after

    def _number(self, state: _State) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._kept += len(state.at)
        return number

    def _reached(self, state: _State, after: str) -> set[int]:
        """All instructions that wait for a character, or for the end, where `after` is what comes next."""
        seen: set[int] = set()
        waiting = list(state.at)
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            instruction = self._program[each]
            if isinstance(instruction, _Split):
                waiting.extend(instruction.targets)
            elif isinstance(instruction, Edge) and instruction.holds(state.before, after):
                waiting.append(each + 1)
        self.work += len(seen)
        return seen
