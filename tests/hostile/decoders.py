"""Every decoder of what comes from outside, with arbitrary bytes: it gives a value or an error of ours. What is
decoded can be encoded, and decodes to the same again.

Input of a check: two bytes choose the decoder, the rest is what it decodes. In `decoders_atheris.py` atheris chooses
the bytes; `run_random` changes valid messages.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from broker.groups.classic_subscription import subscribed_topics
from protocol.codec import decoder, encode, step_decoder
from protocol.errors import KafkaError, ProtocolError
from protocol.headers import parse_request_header
from protocol.messages import ALL_MESSAGES
from protocol.peer import PEER_KINDS, decode_peer, encode_peer
from protocol.peer_handshake import HANDSHAKE_KINDS, decode_handshake, encode_handshake
from protocol.records.batch import Compression, TimestampType, iter_batches
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records
from protocol.records.validate import RecordRules, check_records_in_steps, validate_produce
from protocol.schema import Message
from tests.broker.handlers.hostile.requests import random_message
from tests.hostile.mutations import mutate

#: Elements that a message may hold here.
_ROOM = 5000
_MAX_MESSAGE_BYTES = 1 << 20
#: The strictest: of a compacted topic with limits on timestamps.
_RULES = RecordRules(True, TimestampType.CREATE_TIME, before_max_ms=1000, after_max_ms=1000)


class Check(NamedTuple):
    name: str
    run: Callable[[memoryview], None]
    valid: Callable[[random.Random], bytes]
    """Bytes that are decoded without an error."""


def all_checks(prepare: Callable[[Any], Any] = lambda function: function) -> list[Check]:
    """`prepare`: what is done to each generated decoder."""
    checks = [
        _of_message(cls, version, prepare)
        for cls in ALL_MESSAGES
        for version in range(cls.__schema__.versions.first, cls.__schema__.versions.last + 1)
    ]
    checks += [_of_peers(cls, encode_peer, decode_peer) for cls in PEER_KINDS.values()]
    checks += [_of_peers(cls, encode_handshake, decode_handshake) for cls in HANDSHAKE_KINDS.values()]
    checks += [
        Check("request header", _request_header, lambda rng: b"\0\3\0\x0c\0\0\0\1\0\1x\0"),
        Check("batches", _batches, _valid_batch),
        Check("subscription", _subscription, lambda rng: b"\0\1\0\0\0\1\0\1x\0\0\0\0\0\0\0\0"),
    ]
    return checks


def check(checks: list[Check], data: bytes) -> None:
    """One run."""
    if len(data) >= 2:
        checks[int.from_bytes(data[:2], "big") % len(checks)].run(memoryview(data)[2:])


def run_random(runs: int, seed: int) -> None:
    """Valid messages with some bytes changed."""
    rng = random.Random(seed)
    checks = all_checks()
    valid = b""
    for number in range(runs):
        each = rng.choice(checks)
        before, valid = valid, each.valid(rng)
        data = mutate(rng, valid, before)
        try:
            each.run(memoryview(data))
        except Exception as error:
            error.add_note(f"run {number} of seed {seed}: {each.name}: {data!r}")
            raise


# -- messages ----------------------------------------------------------------------------------------------


def _of_message(cls: type[Message], version: int, prepare: Callable[[Any], Any]) -> Check:
    at_once, in_steps = prepare(decoder(cls, version)), step_decoder(cls, version)

    def run(data: memoryview) -> None:
        try:
            message, end = at_once(data, 0, _ROOM)
        except ProtocolError:
            return
        assert end <= len(data)
        encoded = encode(message, version)
        assert encode(at_once(memoryview(encoded), 0, _ROOM)[0], version) == encoded
        stepped, stepped_end = _result(in_steps(data, 0, _ROOM))
        assert (encode(stepped, version), stepped_end) == (encoded, end)

    return Check(
        f"{cls.__name__} {version}", run, lambda rng: encode(random_message(rng, cls, version), version)
    )


def _result(steps: Generator[None, None, tuple[Message, int]]) -> tuple[Message, int]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: tuple[Message, int] = end.value
            return result


def _of_peers(cls: Any, encode_kind: Callable[[Any], Any], decode_kind: Callable[[memoryview], Any]) -> Check:
    """A message between nodes."""

    def run(data: memoryview) -> None:
        try:
            message = decode_kind(data)
        except ProtocolError:
            return
        encode_kind(message)

    def valid(rng: random.Random) -> bytes:
        return b"".join(map(bytes, encode_kind(random_message(rng, cls, 0))))

    return Check(f"peer {cls.__name__}", run, valid)


def _request_header(data: memoryview) -> None:
    try:
        parse_request_header(data)
    except ProtocolError:
        return


def _subscription(data: memoryview) -> None:
    subscribed_topics(bytes(data))


# -- records -----------------------------------------------------------------------------------------------


def _batches(data: memoryview) -> None:
    """As produced, and as read by consumers of ours (`varve consume`)."""
    with contextlib.suppress(KafkaError):
        header = validate_produce(data, api_version=9, max_message_bytes=_MAX_MESSAGE_BYTES)
        for _ in check_records_in_steps(data, header, _RULES, now_ms=1):
            pass
    try:
        for position, header in iter_batches(data):
            for _ in iter_records(data[position : position + header.size_bytes]):
                pass
    except (KafkaError, ProtocolError):
        pass


def _valid_batch(rng: random.Random) -> bytes:
    records = [
        NewRecord(b"k" * rng.randrange(9), b"v" * rng.randrange(99), 1) for _ in range(rng.randrange(1, 5))
    ]
    return bytes(build_batch(records, compression=rng.choice(list(Compression))))
