"""The operations that a node can ask of the controller (`ControllerClient.call`), by name.

Each reads JSON arguments, has the controller decide, and says what is answered once the decision is committed. Nothing
is appended here, and nothing waits: that is `MetadataService`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from broker.config.resources import Resources
from broker.controller import quorum
from broker.controller.client import Result
from broker.metadata.alterations import ConfigAlteration
from broker.metadata.controller import Controller
from broker.metadata.image import MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.records import BrokerRecord, Endpoint, ReplicaIdentity
from broker.metadata.requests import (
    Decision,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaRenewal,
    TopicResult,
)
from broker.replication.replica import Replica
from protocol.errors import ErrorCode

#: What is to be appended, and the answer once it is committed.
Answered = tuple[Decision[Any], Result]


@dataclass(frozen=True, slots=True)
class Leadership:
    """What there is while this node leads the metadata."""

    controller: Controller
    image: MetadataImage
    """The controller's: everything that it has decided, committed or not."""
    replica: Replica
    resources: Resources


# -- brokers ----------------------------------------------------------------------------------------------


def _register_broker(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    endpoints = {name: Endpoint(host, port) for name, (host, port) in arguments["endpoints"].items()}
    broker = BrokerRecord(
        node_id=arguments["node_id"],
        directory_id=UUID(arguments["directory_id"]),
        boot_id=UUID(arguments["boot_id"]),
        endpoints=endpoints,
        peer=Endpoint(*arguments["peer"]),
        metadata_incarnation=arguments["metadata_incarnation"],
    )
    named = leading.controller.name_cluster(arguments["cluster_id"])
    registered = leading.controller.brokers.register(broker)
    return Decision(named.records + registered.records, None), {"error_code": 0}


def _unregister_broker(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    return leading.controller.brokers.unregister(arguments["node_id"]), {"error_code": 0}


def _renew_replicas(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    renewals = [ReplicaRenewal(UUID(topic), *rest) for topic, *rest in arguments["replicas"]]
    directory_id = UUID(arguments["directory_id"])
    return leading.controller.brokers.renew_replicas(arguments["node_id"], directory_id, renewals), {
        "error_code": 0
    }


def _allocate_producer_ids(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    decision = leading.controller.allocate_producer_ids()
    block = decision.response
    return decision, {"error_code": 0, "first": block.first, "end": block.first + block.count}


def _describe_quorum(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    return Decision((), None), {"error_code": 0, **quorum.describe(leading.replica, leading.image)}


# -- topics -----------------------------------------------------------------------------------------------


def _create_topics(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    topics = [
        NewTopic(
            topic["name"],
            topic["num_partitions"],
            topic["replication_factor"],
            tuple((partition, tuple(replicas)) for partition, replicas in topic["assignments"]),
            dict(topic["configs"]),
        )
        for topic in arguments["topics"]
    ]
    decision = leading.controller.topics.create(
        topics,
        validate_only=arguments["validate_only"],
        is_internal=arguments.get("is_internal", False),
    )
    return decision, _topics_json(decision.response, leading.resources)


def _auto_create(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    decision = leading.controller.topics.create_missing(arguments["names"])
    return decision, _topics_json(decision.response, leading.resources)


def _delete_topics(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    references = [UUID(topic_id) if topic_id else name for name, topic_id in arguments["topics"]]
    decision = leading.controller.topics.delete(references)
    return decision, _topics_json(decision.response, leading.resources)


def _create_partitions(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    """[topic, count, node ids of each new partition or None] each, in `topics`; in the answer name, error code and
    message, and in `new` topic id, first and count of the partitions that were added."""
    wanted = [
        NewPartitions(
            name, count, None if assignments is None else tuple(tuple(nodes) for nodes in assignments)
        )
        for name, count, assignments in arguments["topics"]
    ]
    decision = leading.controller.topics.add_partitions(wanted, validate_only=arguments["validate_only"])
    results = [(x.name, int(x.error), x.message) for x in decision.response]
    new = [
        (str(x.topic_id), x.new_partitions.start, len(x.new_partitions))
        for x in decision.response
        if x.error == ErrorCode.NONE and not arguments["validate_only"]
    ]
    return decision, {"error_code": 0, "topics": results, "new": new}


def _deleted_topics(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    """Which of `topic_ids` are topics no more. Ids are never used again, so that is so for good."""
    deleted = leading.controller.topics.find_deleted([UUID(topic_id) for topic_id in arguments["topic_ids"]])
    return Decision((), None), {"error_code": 0, "deleted": [str(topic_id) for topic_id in deleted]}


def _topics_json(topics: Sequence[TopicResult], resources: Resources) -> Result:
    return {"error_code": 0, "topics": [_topic_json(topic, resources) for topic in topics]}


def _topic_json(topic: TopicResult, resources: Resources) -> dict[str, Any]:
    created = topic.error == ErrorCode.NONE and topic.num_partitions > 0
    described = resources.describe_topic(topic.configs) if created else []
    return {
        "name": topic.name,
        "error_code": int(topic.error),
        "message": topic.message,
        "topic_id": str(topic.topic_id) if topic.topic_id else None,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "configs": [(row.name, row.value, row.source) for row in described],
    }


# -- reassignments ----------------------------------------------------------------------------------------


def _reassign_partitions(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    """[topic, partition, node ids or null] each, in `partitions`; in the answer error code and message instead of
    the nodes."""
    wanted = [
        Reassignment(topic, partition, None if replicas is None else tuple(replicas))
        for topic, partition, replicas in arguments["partitions"]
    ]
    may_change_count = arguments["may_change_count"]
    decision = leading.controller.reassignments.reassign(wanted, may_change_count=may_change_count)
    results = [(x.topic, x.partition, int(x.error), x.message) for x in decision.response]
    return decision, {"error_code": 0, "partitions": results}


def _list_reassignments(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    decision = leading.controller.reassignments.list_ongoing()
    rows = [(x.topic, x.partition, x.replicas, x.adding, x.removing) for x in decision.response]
    return decision, {"error_code": 0, "partitions": rows}


def _finish_reassignment(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    voters = [
        ReplicaIdentity(node_id, UUID(directory), life) for node_id, directory, life in arguments["voters"]
    ]
    decision = leading.controller.reassignments.finish(
        UUID(arguments["topic_id"]), arguments["partition"], voters, arguments["as_of"]
    )
    return decision, {"error_code": 0}


# -- settings ---------------------------------------------------------------------------------------------


def _alter_configs(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    """[kind, name, [setting, operation, value] each] each, in `resources`; in the answer error code and message
    of each, in the same order."""
    wanted = [
        ConfigAlteration(
            kind,
            name,
            tuple((key, how, value) for key, how, value in operations),
            arguments["replaces_all"],
        )
        for kind, name, operations in arguments["resources"]
    ]
    decision = leading.controller.settings.alter_configs(wanted, validate_only=arguments["validate_only"])
    return decision, {"error_code": 0, "results": [(int(x.error), x.message) for x in decision.response]}


def _alter_quotas(leading: Leadership, arguments: dict[str, Any]) -> Answered:
    wanted = [
        QuotaAlteration(
            [(kind, name) for kind, name in entry["entity"]],
            [(key, limit) for key, limit in entry["limits"]],
        )
        for entry in arguments["entries"]
    ]
    decision = leading.controller.settings.alter_quotas(wanted, validate_only=arguments["validate_only"])
    results = [(0, None) if x is None else (int(x.code), x.message) for x in decision.response]
    return decision, {"error_code": 0, "entries": results}


OPERATIONS: dict[str, Callable[[Leadership, dict[str, Any]], Answered]] = {
    "register_broker": _register_broker,
    "unregister_broker": _unregister_broker,
    "renew_replicas": _renew_replicas,
    "allocate_producer_ids": _allocate_producer_ids,
    "describe_quorum": _describe_quorum,
    "create_topics": _create_topics,
    "auto_create": _auto_create,
    "delete_topics": _delete_topics,
    "create_partitions": _create_partitions,
    "deleted_topics": _deleted_topics,
    "reassign_partitions": _reassign_partitions,
    "list_reassignments": _list_reassignments,
    "finish_reassignment": _finish_reassignment,
    "alter_configs": _alter_configs,
    "alter_quotas": _alter_quotas,
}
