"""The roots of requests and results, and the results that several requests share."""

from __future__ import annotations

from typing import Generic, TypeVar

from protocol.schema import INT16, STRING, Message, field

ResultT = TypeVar("ResultT", bound="Result")


class Request(Message, Generic[ResultT]):
    """What another node is asked to do."""

    def is_answered_by(self, result: ResultT) -> bool:
        """Whether a result that came from another node fits this request: has an entry for each of its items."""
        return True


class Result(Message):
    """What a node answers to a request that it has carried out."""


class EmptyResult(Result, flexible="0+"):
    """It is done; there is nothing to say of it."""


class ItemResult(Message):
    """What became of one item of a request."""

    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
