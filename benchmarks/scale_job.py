"""A driver of its own for many partitions: how long until all of them are led and answer.

python -m benchmarks.scale_job scale --bootstrap ... --topic ... --partitions 1000 --replication-factor 3
"""

from __future__ import annotations

import argparse
import sys
import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.python_driver.admin import admin
from benchmarks.python_driver.client import JobError, emit

TIMEOUT_S = 120.0
RETRY_PAUSE_S = 0.05


def run(options: argparse.Namespace) -> None:
    client = admin(options)
    client.list_topics(timeout=10)  # connected before the clock starts
    emit("begin")
    began_s = time.monotonic()
    topic = NewTopic(options.topic, options.partitions, options.replication_factor)
    client.create_topics([topic], request_timeout=TIMEOUT_S)[options.topic].result()
    answered_s = time.monotonic() - began_s
    while not _are_led(client, options) or not _all_answer(client, options):
        if time.monotonic() - began_s > TIMEOUT_S:
            raise JobError(f"{options.topic}: not all partitions are served after {TIMEOUT_S:g} s")
        time.sleep(RETRY_PAUSE_S)
    emit("end")
    emit("result", answered_s=answered_s, served_s=time.monotonic() - began_s)


def _are_led(client: AdminClient, options: argparse.Namespace) -> bool:
    found = client.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    return len(found) == options.partitions and all(each.leader >= 0 for each in found.values())


def _all_answer(client: AdminClient, options: argparse.Namespace) -> bool:
    """Each leader says where its partition ends."""
    wanted = {
        TopicPartition(options.topic, number): OffsetSpec.latest() for number in range(options.partitions)
    }
    try:
        for future in client.list_offsets(wanted, request_timeout=30).values():
            future.result()
    except KafkaException:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["scale"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--replication-factor", type=int, required=True)
    try:
        run(parser.parse_args())
    except (JobError, KafkaException) as error:
        sys.exit(f"scale: {error}")


if __name__ == "__main__":
    main()
