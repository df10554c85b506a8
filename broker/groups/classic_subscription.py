"""The part of a consumer's metadata in the classic protocol that a coordinator has to read: the subscribed topics."""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that a ConsumerProtocolSubscription names. None if the bytes are not one.

    The topics come first in every version. Brokers read no further, because the rest is for the other members only.
    """
    topics = set()
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
