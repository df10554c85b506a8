"""Work in steps, for requests. The rules of steps: broker.scheduling.background.

A handler that does something for each thing that a request names is a generator: it yields after each of them, or
after a few. `broker.serving.long_requests` advances it, at once or in later loop iterations. The client may be gone
after a `yield`. Then the generator is closed, and its `finally` blocks run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.scheduling.background import Steps
from protocol.codec import encode_in_steps
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.request import Request

__all__ = ["Steps", "reply"]


def reply(request: Request, response: Message) -> Steps:
    """Answer with a message that may be large."""
    request.reply_parts((yield from encode_in_steps(response, request.api_version)))
