"""Regular expressions of clients, in RE2's syntax: of topics that a group is subscribed to (KIP-848), of transactional
ids (KIP-1152). An expression matches whole names.

Clients send these expressions, so Python's `re` cannot be used: it tries alternatives one after the other, and a short
expression can make that take years. RE2 follows all alternatives at once. The time of a match is bounded by the length
of the name times the size of the compiled expression. That size is bounded by the memory that RE2 is given.
"""

from __future__ import annotations

MAX_LENGTH = 1_000
"""The longest expression, in characters."""
MAX_UNICODE_CLASSES = 5
"""The most classes like `\\pL`. Each has hundreds of ranges, and takes up to half a millisecond to compile."""
MAX_MEMORY_BYTES = 256 << 10
"""The most memory of a compiled expression, for RE2's instructions and its cached states.

An expression that needs more for its instructions is refused. One that needs more states is matched without caching
them, which takes longer."""
MAX_INSTRUCTIONS = 5_000
"""The most instructions of a compiled expression. A match with the longest topic name takes 4 ms then, where RE2 cannot
cache its states."""
_CALL_US = 3
_INSTRUCTION_NS = 3
"""The longest time of one instruction at one character. Up to 2.9 ns were measured."""
COMPILE_US = 4_000
"""The longest time to compile an expression."""


class PatternError(ValueError):
    """The text is not an expression, or the expression is too large."""


class NamePattern:
    """A compiled expression. Raises PatternError."""

    def __init__(self, text: str) -> None:
        import re2  # Imported here because it takes 3 MB of memory, and most nodes never see an expression.

        if len(text) > MAX_LENGTH:
            raise PatternError(f"longer than {MAX_LENGTH} characters")
        if text.count("\\p") + text.count("\\P") > MAX_UNICODE_CLASSES:
            raise PatternError(f"more than {MAX_UNICODE_CLASSES} Unicode classes")
        options = re2.Options()
        options.max_mem = MAX_MEMORY_BYTES
        options.never_capture = True  # Nobody asks what a group matched, and it would take longer.
        options.log_errors = False
        try:
            self._regexp = re2.compile(text, options)
        except re2.error as error:
            raise PatternError(error.args[0].decode(errors="replace")) from None
        re2.purge()  # It would keep the 128 expressions that were compiled last, which can be 32 MiB.
        self._instructions: int = self._regexp.programsize
        if self._instructions > MAX_INSTRUCTIONS:
            raise PatternError(f"more than {MAX_INSTRUCTIONS} instructions when it is compiled")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches, as in Kafka."""
        return self._regexp.fullmatch(name) is not None

    def cost_us(self, name: str) -> int:
        """The longest time of `matches` in microseconds. Mostly it takes three, because RE2 caches its states."""
        return _CALL_US + len(name) * self._instructions * _INSTRUCTION_NS // 1000
