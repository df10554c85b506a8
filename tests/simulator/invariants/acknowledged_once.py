"""An acknowledged batch stands where its producer was told, and nowhere else: an idempotent one always (KIP-98), one
without idempotence if it was sent only once.

With acks=1 the answer is no promise that the batch stays; but what stays, stays at that offset: a term has one leader,
and that gives an offset away once (Raft, figure 3, log matching).
"""

from __future__ import annotations

from storage.log_types import GroupKey


class AcknowledgedOnce:
    def __init__(self, places: dict[bytes, list[tuple[GroupKey, int]]]) -> None:
        """`places`: where a content was committed."""
        self._places = places
        #: Content -> base offset.
        self._told: dict[bytes, int] = {}

    def told(self, digest: bytes, base_offset: int) -> None:
        """A producer that sent this once, or with sequences to a topic that nobody re-creates, got its offset."""
        assert self._told.setdefault(digest, base_offset) == base_offset, "two answers, two offsets"
        self.check(digest)

    def check(self, digest: bytes) -> None:
        """Also when a content is committed somewhere for the first time."""
        if (offset := self._told.get(digest)) is not None:
            places = self._places.get(digest, [])
            assert all(at == offset for _, at in places) and len(places) <= 1, (
                f"acknowledged at {offset}, committed at {places}"
            )
