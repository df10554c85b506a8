"""A driver to be killed: reads a topic from its start in batches of twenty, and writes each to files and to a topic.

    python -m tests.spark.driver BOOTSTRAP SOURCE SINK FOLDER

The checkpoint and the files are in FOLDER. It runs until it is killed, and goes on from there when it is started again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from pipeline.spark.connector import find_connector
from pipeline.spark.session import spark_session

PER_BATCH = 20


def run(bootstrap: str, source: str, sink: str, folder: Path) -> None:
    def put(batch: DataFrame, number: int) -> None:
        batch.persist()
        # One folder for each batch: what a killed driver left of it is replaced.
        values = batch.selectExpr("CAST(value AS STRING) AS value", "offset")
        values.write.mode("overwrite").parquet(str(folder / "files" / f"batch={number}"))
        options = {"kafka.bootstrap.servers": bootstrap, "topic": sink}
        batch.selectExpr("key", "value").write.format("kafka").options(**options).save()
        batch.unpersist()

    with spark_session(folder / "spark.log", 1, records=1_000, connector=find_connector()) as spark:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        frame = (
            spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=str(PER_BATCH)).load()
        )
        writer = frame.writeStream.foreachBatch(put)
        writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    _bootstrap, _source, _sink, _folder = sys.argv[1:]
    run(_bootstrap, _source, _sink, Path(_folder))
