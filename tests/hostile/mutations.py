"""Changes of bytes: what a client with a defect, or with bad intent, makes of a message."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

_EDGES = {
    "b": (0, 1, -1, 127, -128),
    ">h": (0, 1, -1, 2, 32767, -32768),
    ">i": (0, 1, -1, 1000, 2**31 - 1, -(2**31)),
    ">q": (0, 1, -1, 2**63 - 1, -(2**63)),
}
_NUMBERS = [struct.pack(code, value) for code, values in _EDGES.items() for value in values]
_NUMBERS += [b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\x80" * 12]
"""Numbers at the edges, as integers and as varints."""


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One to four changes. `other`: bytes to splice in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if changed:
            rng.choice(_CHANGES)(rng, changed, other)
    return bytes(changed)


def _flip_bit(rng: random.Random, data: bytearray, other: bytes) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_number(rng: random.Random, data: bytearray, other: bytes) -> None:
    number = rng.choice(_NUMBERS)
    at = rng.randrange(len(data))
    data[at : at + len(number)] = number


def _insert_number(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_NUMBERS)


def _delete(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 100))]


def _repeat(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice((1, 2, 4, 16, 200))] * rng.choice((1, 2, 50))


def _cut(rng: random.Random, data: bytearray, other: bytes) -> None:
    del data[rng.randrange(len(data)) :]


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    at = rng.randrange(len(data))
    data[at:] = other[rng.randrange(len(other) + 1) :]


_CHANGES: tuple[Callable[[random.Random, bytearray, bytes], None], ...] = (
    _flip_bit, _flip_bit, _set_number, _set_number, _insert_number, _delete, _repeat, _cut, _splice,
)  # fmt: skip
