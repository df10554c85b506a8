"""Answers about many keys of a coordinator (group ids, transactional ids): each is looked at by itself, in steps, and
all that was seen is confirmed together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from broker.coordinator.shard import Shard
from broker.scheduling.background import PAUSE
from broker.serving.steps import Steps
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.coordinator.reading import Reading
    from broker.network.request import Request
    from broker.serving.context import Context

A = TypeVar("A")
S = TypeVar("S", bound=Shard[Any])
#: The steps to the part of one key. Raises KafkaError.
Look = Callable[[S, str], Generator[None, None, A]]


def answer_about_keys(
    context: Context,
    request: Request,
    reading: Reading[S],
    keys: Iterable[str],
    look: Look[S, A],
    failed: Callable[[str, KafkaError], A],
    reply: Callable[[dict[str, A]], Steps],
) -> Steps:
    """Answer with a part for each of these keys, which are all distinct. `failed`: the part of a key about which
    nothing can be told. `reply` gets the parts in the order of the keys."""
    all_keys = list(keys)
    for key in all_keys:
        reading.add(key)
        yield
    long_requests, parts = context.long_requests, dict[str, A]()

    def confirmed() -> None:
        long_requests.resume(request, _look_at_all(reading, all_keys, look, failed, parts, seen))

    def seen() -> None:
        long_requests.resume(request, _reply(reading, failed, parts, reply))

    reading.confirm(confirmed)


def _look_at_all(
    reading: Reading[S],
    keys: list[str],
    look: Look[S, A],
    failed: Callable[[str, KafkaError], A],
    parts: dict[str, A],
    seen: Callable[[], None],
) -> Steps:
    for key in keys:
        while reading.is_busy(key):
            yield PAUSE
        try:
            parts[key] = yield from look(reading.shard(key), key)
        except KafkaError as refused:
            parts[key] = failed(key, refused)
        yield
    reading.wait(seen)


def _reply(
    reading: Reading[S],
    failed: Callable[[str, KafkaError], A],
    parts: dict[str, A],
    reply: Callable[[dict[str, A]], Steps],
) -> Steps:
    for key in parts:
        error = reading.error(key)
        if error != ErrorCode.NONE:
            parts[key] = failed(key, KafkaError(error))
        yield
    yield from reply(parts)
