"""What a member answers when its leader asks for a digest of its log."""

from __future__ import annotations

from enum import IntEnum


class DigestState(IntEnum):
    """The numbers are those of the peer protocol."""

    READY = 0
    MAKING = 1
    """It is being made."""
    BUSY = 2
    """A pass of compaction or another comparison is under way."""
    BEHIND = 3
    """It does not know yet that everything there is committed, or has not all of it."""
    COMPACTED_FURTHER = 4
    """A pass went beyond the end that was asked for: what it removed may be superseded there."""
    STARTS_LATER = 5
    """Its log starts above the start that was asked for."""
    REWRITTEN = 6
    """Every batch was asked for, and compaction has rewritten some."""
    FAILED = 7
    """Its log changed meanwhile, or cannot be read."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    DigestState.READY: "compared",
    DigestState.MAKING: "its log is being read",
    DigestState.BUSY: "busy with compaction or another comparison",
    DigestState.BEHIND: "behind",
    DigestState.COMPACTED_FURTHER: "compacted meanwhile",
    DigestState.STARTS_LATER: "its log starts later",
    DigestState.REWRITTEN: "compacted before",
    DigestState.FAILED: "its log changed meanwhile, or cannot be read",
}
