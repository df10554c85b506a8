"""Values of the connector's options, as the tests write them."""

from __future__ import annotations

import json

#: The driver then asks for offsets as a consumer in a group, and not as an admin client.
DEPRECATED = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
FROM_START = {"startingOffsets": "earliest"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


def at(topic: str, **partitions: int) -> str:
    """A number for each partition: at("t", p0=5, p1=-2). Of offsets, -2 is the earliest and -1 the latest."""
    return json.dumps({topic: {name.removeprefix("p"): number for name, number in partitions.items()}})


def second(number: int) -> int:
    """A timestamp in ms, in a row of seconds long ago."""
    return (1_000_000_000 + number) * 1000
