"""What topics there are, and what they are like: asked of the cluster, and as kafka-topics prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.cli.clients import refusal
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.topic_offsets import open_transaction_lines
from broker.metadata.ids import INTERNAL_TOPICS

if TYPE_CHECKING:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient


def topic_refusal(name: str, failure: KafkaException, bootstrap_server: str) -> CommandError:
    from confluent_kafka import KafkaError

    if failure.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return CommandError(f"Topic '{name}' does not exist")
    return refusal(failure.args[0], bootstrap_server)


def find_topics(admin: AdminClient, bootstrap_server: str, *, with_internal: bool) -> list[dict[str, Any]]:
    """A row for each topic, sorted by name."""
    from confluent_kafka import KafkaException

    try:
        found = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as failure:
        raise refusal(failure.args[0], bootstrap_server) from None
    return [
        {
            "topic": name,
            "partition_count": len(topic.partitions),
            "replication_factor": max((len(each.replicas) for each in topic.partitions.values()), default=0),
            "internal": name in INTERNAL_TOPICS,
        }
        for name, topic in sorted(found.items())
        if with_internal or name not in INTERNAL_TOPICS
    ]


def describe_topics(admin: AdminClient, names: list[str], bootstrap_server: str) -> list[dict[str, Any]]:
    from confluent_kafka import KafkaException, TopicCollection

    if not names:
        return []
    described = []
    settings = _settings(admin, names, bootstrap_server)
    futures = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
    for name, future in futures.items():
        try:
            found = future.result()
        except KafkaException as failure:
            raise topic_refusal(name, failure, bootstrap_server) from None
        partitions = [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader and partition.leader.id >= 0 else None,
                "replicas": [replica.id for replica in partition.replicas],
                "isr": [replica.id for replica in partition.isr],
            }
            for partition in sorted(found.partitions, key=lambda partition: partition.id)
        ]
        described.append(
            {
                "topic": name,
                # The client library uses the other alphabet of base64.
                "topic_id": str(found.topic_id).replace("+", "-").replace("/", "_"),
                "partition_count": len(partitions),
                "replication_factor": len(partitions[0]["replicas"]) if partitions else 0,
                "configs": settings.get(name, {}),
                "partitions": partitions,
            }
        )
    return described


def _settings(admin: AdminClient, names: list[str], bootstrap_server: str) -> dict[str, dict[str, str]]:
    """The settings of each topic that are not defaults. Empty if the cluster does not support the request."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource

    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    settings: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
        try:
            entries = future.result().values()
        except KafkaException as failure:
            code = failure.args[0].code()
            if code in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNKNOWN_TOPIC_OR_PART):
                continue  # The request about partitions reports an unknown topic.
            raise refusal(failure.args[0], bootstrap_server) from None
        settings[resource.name] = {entry.name: entry.value for entry in entries if not entry.is_default}
    return settings


def headline(description: dict[str, Any]) -> str:
    configs = ",".join(f"{key}={value}" for key, value in description["configs"].items())
    return (
        f"Topic: {description['topic']}\tTopicId: {description['topic_id']}"
        f"\tPartitionCount: {description['partition_count']}"
        f"\tReplicationFactor: {description['replication_factor']}\tConfigs: {configs}"
    )


def partition_line(name: str, partition: dict[str, Any]) -> str:
    """The line that kafka-topics prints, because scripts parse it. Offsets come at its end."""
    leader = "none" if partition["leader"] is None else partition["leader"]
    replicas, isr = (",".join(map(str, partition[key])) for key in ("replicas", "isr"))
    line = (
        f"\tTopic: {name}\tPartition: {partition['partition']}\tLeader: {leader}"
        f"\tReplicas: {replicas}\tIsr: {isr}\tElr: \tLastKnownElr: "
    )
    if "end_offset" in partition:
        line += f"\tStartOffset: {partition['start_offset']}\tEndOffset: {partition['end_offset']}"
        line += f"\tLastStableOffset: {partition['last_stable_offset']}"
        line += "".join(f"\n\t\t{each}" for each in open_transaction_lines(partition))
    return line
