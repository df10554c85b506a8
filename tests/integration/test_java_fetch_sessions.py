"""Java's consumer fetches many partitions in sessions, and goes on in new ones when a node dies."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from confluent_kafka import Producer

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import eventually
from tests.integration.test_java_groups import JAVA, class_path
from tests.storage.test_kafka_reads_our_files import pytestmark  # noqa: F401 slow, and needs Kafka's jars

PARTITIONS = 150
ROUNDS = 20
PER_ROUND = 10

LOGGING = """\
appender.c.type=File
appender.c.name=C
appender.c.fileName={log}
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%p %m%n
rootLogger.level=OFF
logger.sessions.name=org.apache.kafka.clients.FetchSessionHandler
logger.sessions.level=DEBUG
logger.sessions.appenderRef.c.ref=C
"""


def test_many_partitions_of_which_few_move(make_cluster: ClusterFactory, tmp_path: Path) -> None:
    """Every record once, in each partition in order, although most answers leave most partitions out and one node is
    killed in the middle."""
    cluster = make_cluster(group__initial__rebalance__delay__ms="0")
    with cluster.wire() as wire:
        assert wire.create("many", partitions=PARTITIONS).error_code == 0
    cluster.leader_of("many", PARTITIONS - 1)
    log = tmp_path / "sessions.log"
    (tmp_path / "log4j2.properties").write_text(LOGGING.format(log=log))
    command = [
        JAVA[0], f"-Dlog4j2.configurationFile={tmp_path / 'log4j2.properties'}", *JAVA[1:], "-cp", class_path(),
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap,
        "--topic", "many", "--from-beginning", "--max-messages", str(ROUNDS * PER_ROUND), "--timeout-ms", "60000",
    ]  # fmt: skip
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        eventually(lambda: log.exists() and "incremental" in log.read_text(), "a session", timeout_s=60)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True}
        )
        rng = random.Random(1)
        numbers = [0] * PARTITIONS
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                cluster.kill(2)
            for partition in rng.sample(range(PARTITIONS), PER_ROUND):
                producer.produce("many", f"{partition}/{numbers[partition]}", partition=partition)
                numbers[partition] += 1
            assert producer.flush(60) == 0
        output, _ = consumer.communicate(timeout=90)
    finally:
        consumer.kill()
    read: dict[int, list[int]] = {}
    for line in output.splitlines():
        partition_text, slash, number_text = line.partition("/")
        if slash and partition_text.isdigit():
            read.setdefault(int(partition_text), []).append(int(number_text))
    assert read == {at: list(range(count)) for at, count in enumerate(numbers) if count}, output[-2000:]
    told = log.read_text()
    assert told.count("sent an incremental fetch response") > 3 * told.count("Built full fetch") > 0, told[
        -2000:
    ]
