"""The queries' own process: `python -m pipeline.streaming OPTIONS`, started by `driver.py`, which may kill it.

It prints one JSON object per line: {"started": true}, then one for each batch. It ends when its standard input does, so
that no query outlives the command that started it.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.spark.connector import find_connector
from pipeline.spark.session import SparkOptions, spark_session
from pipeline.streaming.query import QueryOptions, start_queries
from pipeline.streaming.spec import Topics

_POLL_S = 1
# More than two queries end between two looks.
_KEPT_BATCHES = "20"


def main(options_json: str) -> None:
    """`options_json`: of `driver.QueryProcess`. What goes wrong ends the process, with the reason on stderr."""
    given = json.loads(options_json)
    options = QueryOptions(
        given["bootstrap_server"],
        Topics.named(given["topic"]),
        Path(given["checkpoints"]),
        given["sink"],
        given["trigger_ms"],
    )
    asked_to_stop = threading.Event()
    threading.Thread(target=_await_end_of_input, args=(asked_to_stop,), daemon=True).start()
    with spark_session(
        Path(given["log"]),
        given["tasks"],
        records=given["records"],
        connector=find_connector(),
        options=SparkOptions(
            given["master"], {"spark.sql.streaming.numRecentProgressUpdates": _KEPT_BATCHES, **given["conf"]}
        ),
    ) as spark:
        queries = start_queries(spark, options)
        _tell({"started": True})
        _report(spark, queries, asked_to_stop)
        for query in queries:
            query.stop()


def _await_end_of_input(asked_to_stop: threading.Event) -> None:
    sys.stdin.read()
    asked_to_stop.set()


def _report(spark: SparkSession, queries: list[StreamingQuery], asked_to_stop: threading.Event) -> None:
    """Tell each batch once, until asked to stop. Raises what a query failed with."""
    told: dict[str, int] = {}
    while not asked_to_stop.is_set():
        spark.streams.awaitAnyTermination(_POLL_S)
        for query in queries:
            name = query.name
            assert name is not None, "start_queries names them"
            for progress in query.recentProgress:
                batch = progress["batchId"]
                if progress["numInputRows"] and batch > told.get(name, -1):
                    told[name] = batch
                    _tell(_batch(name, progress))


def _batch(name: str, progress: Any) -> dict[str, Any]:
    return {
        "query": name,
        "batch": progress["batchId"],
        "records": progress["numInputRows"],
        "duration_ms": progress["durationMs"]["triggerExecution"],
        "end_offsets": json.loads(progress["sources"][0]["endOffset"]),
    }


def _tell(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
