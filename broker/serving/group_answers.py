"""Answers about many groups: each is looked at by itself, in steps, and all that was seen is confirmed together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from broker.groups.shard import Shard
from broker.scheduling.background import PAUSE
from broker.serving.steps import Steps
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.coordinator.reading import Reading
    from broker.network.request import Request
    from broker.serving.context import Context

A = TypeVar("A")
#: The steps to the part of one group. Raises KafkaError.
Look = Callable[[Shard, str], Generator[None, None, A]]


def answer_about_groups(
    context: Context,
    request: Request,
    group_ids: Iterable[str],
    look: Look[A],
    failed: Callable[[str, KafkaError], A],
    reply: Callable[[dict[str, A]], Steps],
) -> Steps:
    """Answer with a part for each of these groups, which are all distinct. `failed`: the part of a group about which
    nothing can be told. `reply` gets the parts in the order of the groups."""
    ids, reading = list(group_ids), context.groups.reading()
    for group_id in ids:
        reading.add(group_id)
        yield
    long_requests, parts = context.long_requests, dict[str, A]()

    def confirmed() -> None:
        long_requests.resume(request, _look_at_all(reading, ids, look, failed, parts, seen))

    def seen() -> None:
        long_requests.resume(request, _reply(reading, failed, parts, reply))

    reading.confirm(confirmed)


def _look_at_all(
    reading: Reading[Shard],
    group_ids: list[str],
    look: Look[A],
    failed: Callable[[str, KafkaError], A],
    parts: dict[str, A],
    seen: Callable[[], None],
) -> Steps:
    for group_id in group_ids:
        while reading.is_busy(group_id):
            yield PAUSE
        try:
            parts[group_id] = yield from look(reading.shard(group_id), group_id)
        except KafkaError as refused:
            parts[group_id] = failed(group_id, refused)
        yield
    reading.wait(seen)


def _reply(
    reading: Reading[Shard],
    failed: Callable[[str, KafkaError], A],
    parts: dict[str, A],
    reply: Callable[[dict[str, A]], Steps],
) -> Steps:
    for group_id in parts:
        error = reading.error(group_id)
        if error != ErrorCode.NONE:
            parts[group_id] = failed(group_id, KafkaError(error))
        yield
    yield from reply(parts)
