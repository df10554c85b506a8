"""A cache of large answers that many clients ask for."""

from __future__ import annotations

#: The smallest answer that is cached: one of this size takes a millisecond or more to make.
MIN_CACHED_BYTES = 4096
_MAX_CACHE_BYTES = 8 << 20


class AnswerCache:
    """Encoded answers, by question. They are valid for one stamp: the versions of everything that answers depend on.

    Invariant: all of `_answers` were made under `_stamp`, and `_size_bytes` is the sum of their sizes.
    """

    def __init__(self) -> None:
        self._stamp: tuple[object, ...] = ()
        self._answers: dict[tuple[object, ...], bytes] = {}
        self._size_bytes = 0

    def get(self, question: tuple[object, ...], stamp: tuple[object, ...]) -> bytes | None:
        """The cached answer to `question`, or None. With another stamp than before, all answers are dropped."""
        if stamp != self._stamp:
            self._stamp = stamp
            self._answers = {}
            self._size_bytes = 0
        return self._answers.get(question)

    def put(self, question: tuple[object, ...], answer: bytes, stamp: tuple[object, ...]) -> None:
        """Cache an answer of at least MIN_CACHED_BYTES that was made under this stamp, if there is room and no newer
        stamp. An answer that is there already stays."""
        if (
            stamp == self._stamp
            and question not in self._answers
            and self._size_bytes + len(answer) <= _MAX_CACHE_BYTES
        ):
            self._answers[question] = answer
            self._size_bytes += len(answer)
