"""The short slice of these tests that runs in every scripts/test: sink, batch source, streaming source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.target import Target

if TYPE_CHECKING:
    from tests.spark.reading import Reader


def test_from_spark_to_spark(target: Target, reader: Reader, name: str) -> None:
    target.create(name, 3)
    frame = reader.spark.range(900).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": target.bootstrap, "topic": name}
    frame.write.format("kafka").options(**options).save()
    wanted = sorted(map(str, range(900)))
    assert sorted(map(str, reader.values(subscribe=name))) == wanted
    stream = reader.stream(
        subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="300"
    ).available_now()
    assert sorted(map(str, stream.values)) == wanted
    assert len(stream.sizes) >= 3
    assert stream.end_offsets == {name: {str(p): end for p, end in target.ends(name, 3).items()}}
