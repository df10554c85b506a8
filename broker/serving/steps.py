"""Work in steps: what would keep the event loop busy for long pauses often.

A handler that does something for each thing that a request names is a generator: it yields after each of them, or
after a few. `broker.serving.long_requests` advances it, at once or in later loop iterations. Rules:

- A step, from one `yield` to the next, takes less than a millisecond.
- Everything may have changed after a `yield`: the metadata, who leads, which log a replica has, whether it is open.
- The client may be gone after a `yield`. Then the generator is closed, and its `finally` blocks run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.codec import encode_in_steps
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.request import Request

#: What is yielded means nothing.
Steps = Iterator[object]


def reply(request: Request, response: Message) -> Steps:
    """Answer with a message that may be large."""
    request.reply_parts((yield from encode_in_steps(response, request.api_version)))
