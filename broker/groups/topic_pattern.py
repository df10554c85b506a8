"""Regular expressions over topic names, as members of consumer groups send them (KIP-848): RE2's syntax, whole names.

Clients send them, so Python's `re` will not do: it tries alternatives one after the other, and a short expression can
make that take years. RE2 follows all alternatives at once. What it takes is bounded by the length of the name times the
size of the compiled expression, and that size by the memory that RE2 is given.
"""

from __future__ import annotations

MAX_LENGTH = 1_000
"""Characters of an expression."""
MAX_MEMORY_BYTES = 256 << 10
"""Of a compiled expression: RE2's instructions (18,000 at most) and the states that it keeps. An expression that needs
more instructions is refused. One that needs more states is matched without keeping them, which takes longer. The module
`re2` keeps the 128 expressions that were compiled last, which is 32 MiB at most."""
_CALL_US = 3
_INSTRUCTION_NS = 3
"""What one instruction takes at one character, at most. Measured were up to 2.9."""
COMPILE_US = 80
"""What compiling takes for each character, at most. Unicode classes that ignore case take longest."""


class PatternError(ValueError):
    """Not an expression, or too large a one."""


class TopicPattern:
    """A compiled expression. Raises PatternError."""

    def __init__(self, text: str) -> None:
        import re2  # here, for most nodes never see an expression: it takes 3 MB of memory

        if len(text) > MAX_LENGTH:
            raise PatternError(f"longer than {MAX_LENGTH} characters")
        options = re2.Options()
        options.max_mem = MAX_MEMORY_BYTES
        options.never_capture = True  # what a group matched is not asked for, and would take longer
        options.log_errors = False
        try:
            self._regexp = re2.compile(text, options)
        except re2.error as error:
            raise PatternError(error.args[0].decode(errors="replace")) from None
        self._instructions: int = self._regexp.programsize

    def matches(self, name: str) -> bool:
        """The whole name, as Kafka does."""
        return self._regexp.fullmatch(name) is not None

    def cost_us(self, name: str) -> int:
        """How many microseconds `matches` may take. Mostly it takes three: states that RE2 has met before are kept."""
        return _CALL_US + len(name) * self._instructions * _INSTRUCTION_NS // 1000
