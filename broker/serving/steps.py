"""Work in steps, for requests. The rules of steps: broker.scheduling.background.

A handler that does something for each thing that a request names is a generator: it yields after each of them, or
after a few. `broker.serving.long_requests` advances it, at once or in later loop iterations. The client may be gone
after a `yield`. Then the generator is closed, and its `finally` blocks run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.scheduling.background import Steps
from protocol.codec import encode, encode_in_steps
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

__all__ = ["Steps", "finish", "reply", "unless_done"]

#: A response with no more parts is encoded at once.
FEW_PARTS = 50


def unless_done(steps: Steps, undo: Callable[[], None]) -> Steps:
    """The same steps. `undo` is called if they are not all done: one raises, or the client is gone, perhaps before the
    first of them."""
    guarded = _guarded(steps, undo)
    next(guarded)  # what was never begun would not be undone
    return guarded


def _guarded(steps: Steps, undo: Callable[[], None]) -> Steps:
    try:
        yield
        yield from steps
    except BaseException:
        undo()
        raise


def reply(request: Request, response: Message) -> Steps:
    """Answer with a message that may be large."""
    request.reply_parts((yield from encode_in_steps(response, request.api_version)))


def finish(context: Context, request: Request, response: Message, parts: int) -> None:
    """Answer a request that has waited, with a response of so many `parts`: structs, about."""
    if parts > FEW_PARTS:
        context.long_requests.resume(request, reply(request, response))
    elif not request.is_abandoned:
        request.reply_bytes(encode(response, request.api_version))
