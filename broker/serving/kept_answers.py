"""Large answers that many clients ask for, kept while they are true."""

from __future__ import annotations

#: Answers of so many bytes take a millisecond or more to make, and many clients ask the same.
_WORTH_KEEPING_BYTES = 4096
_KEPT_BYTES = 16 << 20


class KeptAnswers:
    """Large answers as they were encoded, while all that they tell of is as it was.

    Invariant: all of `_answers` were made under `_stamp`; their sizes sum up to `_size_bytes`.
    """

    def __init__(self) -> None:
        self._stamp: tuple[object, ...] = ()
        self._answers: dict[tuple[object, ...], bytes] = {}
        self._size_bytes = 0

    def get(self, question: tuple[object, ...], stamp: tuple[object, ...]) -> bytes | None:
        """`stamp`: what has to be equal for an answer to be the same again."""
        if stamp != self._stamp:
            self._stamp = stamp
            self._answers = {}
            self._size_bytes = 0
        return self._answers.get(question)

    def keep(self, question: tuple[object, ...], answer: bytes) -> None:
        """Made under the stamp of the last `get`."""
        if len(answer) >= _WORTH_KEEPING_BYTES and self._size_bytes + len(answer) <= _KEPT_BYTES:
            self._answers[question] = answer
            self._size_bytes += len(answer)
