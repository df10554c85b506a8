"""`python -m tests.hostile.fuzz REQUESTS SEED [--when-idle]`: requests of every API and version with odd values, some
of them with changed bytes. The target is read from stdin as JSON, and what became of them is written to stdout as JSON.

A connection that the broker closes is opened again, so that the next request is read. A group of requests ends with a
question that must be answered: what comes before its answer is processed by then, answered or not (Produce with acks=0
has no answer).
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from broker.handlers import APIS
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader, encode_request_header
from tests.broker.handlers.hostile.requests import TOPIC, random_request
from tests.hostile.idle import run_when_idle
from tests.hostile.mutations import mutate
from tests.hostile.target import Address, Target

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_SENTINEL_ID = -77
#: Requests in a group, and connections at a time. A group takes as long as its flushes do, not a node's processor time.
_GROUP = 8
CONNECTIONS = 48
_WAIT_S = 2.0
#: At some 2,000 requests per second, some ten topics with hundreds of partitions are created meanwhile.
_TIDY_S = 10.0
#: Quotas would slow down the fuzzer itself; they have tests of their own (tests/broker/handlers/hostile).
_LEFT_OUT = (ApiKey.ALTER_CLIENT_QUOTAS,)
_FUZZED = [api for api in APIS if api.key not in _LEFT_OUT]
#: Frames are changed again and again before new ones are made: making one costs more than what the broker does with it.
_CORPUS = 3000
_RENEWED = 0.1
_SHORT_BYTES, _ATTEMPTS = 2000, 10
#: What is refused ends the connection, and costs more than what is processed.
_CHANGED, _CHANGED_HEADERS = 0.3, 0.05
#: API key, version, correlation id, client id, and the tags of a flexible version.
_HEADER_BYTES = len(encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, "fuzz")))


@dataclass(slots=True)
class Result:
    """Of each API: how many requests were processed, refused (the connection was closed), and still waiting after
    _WAIT_S."""

    processed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)


class NoConnectionError(Exception):
    """A node does not accept connections any more."""


class Corpus:
    """Encoded requests to change."""

    def __init__(self, rng: random.Random, topic_id: UUID) -> None:
        self._rng = rng
        self._topic_id = topic_id
        self._frames = [self._new() for _ in range(_CORPUS)]

    def _new(self) -> tuple[str, bytes]:
        """Short ones mostly: a change in the middle of a long text is none."""
        for _ in range(_ATTEMPTS):
            request = replace(random_request(self._rng, _FUZZED), client_id="fuzz")
            frame = request.frame(1, self._topic_id, "")
            if len(frame) < _SHORT_BYTES:
                break
        return request.api.key.name, frame

    def next(self) -> tuple[str, bytes]:
        """(name of the API, frame without its size)."""
        at = self._rng.randrange(len(self._frames))
        if self._rng.random() < _RENEWED:
            self._frames[at] = self._new()
        name, frame = self._frames[at]
        if self._rng.random() < _CHANGED:
            # Most decoders are behind the header.
            kept = 0 if self._rng.random() < _CHANGED_HEADERS else _HEADER_BYTES
            other = self._rng.choice(self._frames)[1]
            frame = frame[:kept] + mutate(self._rng, frame[kept:], other[kept:])
        return name, frame


def _sentinel() -> bytes:
    header = RequestHeader(ApiKey.API_VERSIONS, 0, _SENTINEL_ID, "fuzz")
    return encode_request_header(header)


def fuzz(target: Target, requests: int, seed: int) -> Result:
    """Until so many requests are processed."""
    return asyncio.run(_fuzz(target, requests, seed))


async def _fuzz(target: Target, requests: int, seed: int) -> Result:
    topic_id = await asyncio.to_thread(target.create, TOPIC, 2)
    rng, result = random.Random(seed), Result()
    corpus = Corpus(rng, topic_id)

    async def work(address: Address) -> None:
        while result.processed.total() < requests:
            await _one_connection(address, corpus, result, requests)

    tidying = asyncio.create_task(_delete_topics(target, keep=await asyncio.to_thread(target.topics)))
    addresses = list(target.nodes.values())
    await asyncio.gather(*(work(addresses[number % len(addresses)]) for number in range(CONNECTIONS)))
    tidying.cancel()
    with suppress(asyncio.CancelledError):
        await tidying
    return result


async def _delete_topics(target: Target, keep: set[str]) -> None:
    """Delete again and again what odd requests have created: a topic is no defect, but costs each node memory."""
    while True:
        await asyncio.sleep(_TIDY_S)
        topics = await asyncio.to_thread(target.topics)
        await asyncio.to_thread(target.delete, topics - keep)


async def _one_connection(address: Address, corpus: Corpus, result: Result, requests: int) -> None:
    """Until the broker closes it, or a request waits for too long. Raises NoConnectionError."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        raise NoConnectionError(f"{address} is not reached any more: {error}") from error
    try:
        while result.processed.total() < requests:
            group = [corpus.next() for _ in range(_GROUP)]
            frames = [*(frame for _, frame in group), _sentinel()]
            writer.write(b"".join(_SIZE.pack(len(frame)) + frame for frame in frames))
            if not await _read_group(reader, [name for name, _ in group], result):
                return
    finally:
        writer.transport.abort()


async def _read_group(reader: asyncio.StreamReader, names: list[str], result: Result) -> bool:
    """Whether the connection is still good."""
    answered = 0
    try:
        async with asyncio.timeout(_WAIT_S):
            while True:
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                answer = await reader.readexactly(size)
                if _CORRELATION_ID.unpack_from(answer)[0] == _SENTINEL_ID:
                    result.processed.update(names)
                    return True
                answered += 1
    except TimeoutError:
        became = result.waiting
    except (asyncio.IncompleteReadError, OSError):
        became = result.refused
    # Answers come in the order of the requests. Where some have none, this counts too few as processed.
    result.processed.update(names[:answered])
    became.update(names[answered : answered + 1])
    return False


def main() -> None:
    run_when_idle()
    target = Target.from_dict(json.load(sys.stdin))
    result = fuzz(target, int(sys.argv[1]), int(sys.argv[2]))
    became = {"processed": result.processed, "refused": result.refused, "waiting": result.waiting}
    json.dump(
        {"counts": {name: counted.total() for name, counted in became.items()}, "defects": []}, sys.stdout
    )


if __name__ == "__main__":
    main()
