"""What the keys of a coordinator take in memory on a node, and its bound (varve.max.group.bytes,
varve.max.transaction.bytes).

The sizes are estimates: constants that were measured, and the lengths of texts. What takes no more than before is
always allowed: the groups and transactional ids that are there go on when the bound is reached.
"""

from __future__ import annotations

from collections.abc import Callable


class CoordinatorMemory:
    """Of one node; its shards share it."""

    def __init__(self, max_bytes: int, used_bytes: Callable[[], int]) -> None:
        """`used_bytes`: the sum of the shards."""
        self.max_bytes = max_bytes
        self.used_bytes = used_bytes
        #: How many requests were refused since this was last set to 0.
        self.refused = 0

    def has_room(self, added_bytes: int) -> bool:
        """Whether something may take so much more than before. If not, the request is refused."""
        if added_bytes <= 0 or self.used_bytes() + added_bytes <= self.max_bytes:
            return True
        self.refused += 1
        return False


def text_size(text: str | None) -> int:
    """The characters of a string. Python has the same length for all of them."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def unbounded() -> CoordinatorMemory:
    return CoordinatorMemory(1 << 62, lambda: 0)
