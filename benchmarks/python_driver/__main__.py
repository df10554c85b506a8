"""`python -m benchmarks.python_driver JOB --topic ... --bootstrap ...`: one job, JSON lines on standard output."""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import KafkaException

from benchmarks.python_driver import admin, consume, produce
from benchmarks.python_driver.client import JobError

JOBS = {
    "create": admin.run_create,
    "delete": admin.run_delete,
    "leader": admin.run_leader,
    "first-ack": admin.run_first_ack,
    "produce": produce.run_produce,
    "latency": produce.run_latency,
    "paced": produce.run_paced,
    "consume": consume.run_consume,
    "check": consume.run_check,
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The options of `native_driver/driver.c`, with its defaults."""
    parser = argparse.ArgumentParser(prog="python_driver")
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--bootstrap", default="localhost:19092")
    parser.add_argument("--topic", required=True)
    integers = {
        "partitions": 1,
        "replication-factor": 3,
        "record-bytes": 1024,
        "batch-bytes": 16384,
        "in-flight": 5,
    }
    integers |= {"linger-ms": 5, "producers": 1, "total-records": 0, "expect-records": 0, "timeout-ms": 60000}
    for name, default in integers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, seconds in {"rate": 500.0, "seconds": 5.0, "warmup-seconds": 1.0}.items():
        parser.add_argument(f"--{name}", type=float, default=seconds)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_arguments(sys.argv[1:])
    try:
        JOBS[options.job](options)
    except (KafkaException, JobError) as error:
        sys.exit(f"{options.job}: {error}")


if __name__ == "__main__":
    main()
