"""Kafka's own tools administrate a cluster: moving partitions, leaders, the quorum, quotas, brokers, features."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_java_groups import JAVA, class_path
from tests.storage.test_kafka_reads_our_files import pytestmark  # noqa: F401 slow, and needs Kafka's jars

TOOLS = "org.apache.kafka.tools"
#: Their parser wants the server before the verb, that of the others behind it.
SERVER_FIRST = ("MetadataQuorumCommand", "FeatureCommand", "TransactionsCommand")


def tool(cluster: BrokerCluster, name: str, *arguments: str, code: int = 0) -> str:
    """What it printed."""
    server = ["--bootstrap-server", cluster.bootstrap]
    words = [*server, *arguments] if name.endswith(SERVER_FIRST) else [*arguments, *server]
    command = [*JAVA, "-cp", class_path(), name, *words]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture
def four(make_cluster: ClusterFactory) -> BrokerCluster:
    """A topic `t` of four partitions on nodes 1 to 3."""
    cluster = make_cluster(4, auto__leader__rebalance__enable="false")
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]]
    wanted = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in enumerate(replicas)
        ],
    )
    with cluster.wire() as wire:
        assert wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    for partition in range(4):
        cluster.leader_of("t", partition)
    return cluster


def test_partitions_are_moved_by_a_plan_of_kafkas_tool(four: BrokerCluster, tmp_path: Path) -> None:
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    generated = tool(
        four, name, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3,4", "--generate"
    )
    plan.write_text(generated.split("Proposed partition reassignment configuration")[1].strip())
    wanted = {x["partition"]: x["replicas"] for x in json.loads(plan.read_text())["partitions"]}
    started = tool(four, name, "--reassignment-json-file", str(plan), "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments for t-0,t-1,t-2,t-3" in started

    def is_verified() -> bool:
        shown = tool(four, name, "--reassignment-json-file", str(plan), "--verify")
        return len(re.findall("Reassignment of partition t-. is completed", shown)) == 4

    eventually(is_verified, "the plan is fulfilled", timeout_s=60)
    described = tool(four, f"{TOOLS}.TopicCommand", "--describe", "--topic", "t")
    found = re.findall(r"Partition: (\d)\tLeader: \d\tReplicas: ([\d,]+)", described)
    assert {int(number): [int(x) for x in nodes.split(",")] for number, nodes in found} == wanted
    assert "No partition reassignments found" in tool(four, name, "--list")


def test_leaders_and_the_quorum(four: BrokerCluster) -> None:
    four.kill(1)
    eventually(lambda: four.leader_of("t", 0) != 1, "another leader")
    four.start(1)
    four.wait_ready()
    election = f"{TOOLS}.LeaderElectionCommand"

    def is_elected() -> bool:
        shown = tool(four, election, "--election-type", "preferred", "--all-topic-partitions")
        return "Successfully completed" in shown or four.leader_of("t", 0) == 1

    eventually(is_elected, "node 1 leads again", timeout_s=60)
    assert four.leader_of("t", 0) == four.leader_of("t", 3) == 1
    again = tool(four, election, "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Valid replica already elected for partitions t-0" in again
    status = tool(four, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId: +[1-4]\n", status) and status.count('"directoryId"') == 4
    replication = tool(four, f"{TOOLS}.MetadataQuorumCommand", "describe", "--replication")
    assert replication.count("Follower") == 3 and replication.count("Leader") == 1


def test_quotas_by_kafkas_config_command(four: BrokerCluster) -> None:
    name = "kafka.admin.ConfigCommand"
    app = ("--entity-type", "clients", "--entity-name", "app")
    limits = "producer_byte_rate=1048576,request_percentage=200"
    assert "Completed updating config for client app" in tool(
        four, name, "--alter", "--add-config", limits, *app
    )
    shown = tool(four, name, "--describe", *app)
    assert "producer_byte_rate=1048576.0" in shown and "request_percentage=200.0" in shown
    tool(four, name, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *app)
    assert "Quota configs" not in tool(four, name, "--describe", *app)


def test_a_broker_that_holds_nothing_is_unregistered(four: BrokerCluster) -> None:
    name = f"{TOOLS}.ClusterTool"
    shown = tool(four, name, "list-endpoints", "--include-fenced-brokers")
    assert shown.count("unfenced") == 4
    assert "still holds" in tool(four, name, "unregister", "--id", "1", code=1)
    assert "Broker 4 is no longer registered" in tool(four, name, "unregister", "--id", "4")
    assert tool(four, name, "list-endpoints", "--include-fenced-brokers").count("unfenced") == 3


def test_a_java_producer_works_by_the_level_of_transaction_version(four: BrokerCluster) -> None:
    name, feature = f"{TOOLS}.FeatureCommand", "transaction.version"

    def features(*arguments: str, code: int = 0) -> str:
        return tool(four, name, *arguments, code=code)

    def level() -> int:
        found = re.search(rf"Feature: {feature}\s.*FinalizedVersionLevel: (\d)", features("describe"))
        assert found
        return int(found[1])

    def last_epoch(transactional_id: str) -> int:
        """The producer epoch after some transactions. EndTxn 5 raises it each time, EndTxn 4 never."""
        tool(
            four, f"{TOOLS}.ProducerPerformance", "--topic", "t", "--num-records", "40", "--record-size", "10",
            "--throughput", "40", "--transactional-id", transactional_id, "--transaction-duration-ms", "100",
        )  # fmt: skip
        shown = tool(four, f"{TOOLS}.TransactionsCommand", "describe", "--transactional-id", transactional_id)
        titles, values = (line.split() for line in shown.splitlines())
        state = dict(zip(titles, values, strict=False))
        assert state["TransactionState"] == "CompleteCommit"
        return int(state["ProducerEpoch"])

    assert level() == 2 and last_epoch("second") > 2
    assert "downgraded to 1" in features("downgrade", "--feature", f"{feature}=1")
    assert level() == 1 and last_epoch("first") == 0
    assert "was disabled" in features("disable", "--feature", feature)
    assert level() == 0 and last_epoch("zeroth") == 0
    refused = features("upgrade", "--feature", f"{feature}=3", code=1)
    assert "this build supports 0 to 2" in refused
    assert "can be upgraded to 2" in features("upgrade", "--feature", f"{feature}=2", "--dry-run")
    assert level() == 0
    assert "upgraded to 2" in features("upgrade", "--feature", f"{feature}=2")
    assert level() == 2 and last_epoch("first") > 2


def test_a_client_that_would_log_in_is_told_that_it_cannot(four: BrokerCluster, tmp_path: Path) -> None:
    """Its handshake had no answer, and it dialled again until its timeout."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;"
    settings = tmp_path / "client.properties"
    settings.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    said = tool(four, f"{TOOLS}.TopicCommand", "--list", "--command-config", str(settings), code=1)
    assert "Unexpected handshake request with client mechanism PLAIN" in said
