"""What the controller does about each request (`protocol.controller`): reads it, has `broker.metadata` decide, and says
what is answered once the decision is committed.

Nothing is appended here, and nothing waits: that is `MetadataService`'s. All of it is done in steps, because a request
may be about thousands of things.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.config.resources import KINDS
from broker.controller import quorum
from broker.metadata.alterations import ConfigAlteration
from broker.metadata.controller import Controller
from broker.metadata.image import MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.records import BrokerRecord, Endpoint, ReplicaIdentity
from broker.metadata.requests import (
    Deciding,
    Decision,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaRenewal,
    TopicResult,
)
from broker.replication.replica import Replica
from protocol.controller import brokers, replicas, settings, topics
from protocol.controller.request import EmptyResult, ItemResult, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import NIL_UUID


@dataclass(frozen=True, slots=True)
class Leadership:
    """What there is while this node leads the metadata."""

    controller: Controller
    image: MetadataImage
    """The controller's: everything that it has decided, committed or not."""
    replica: Replica
    epoch: int
    """Its leader epoch."""


# -- brokers ----------------------------------------------------------------------------------------------


def _register_broker(leading: Leadership, request: brokers.RegisterBroker) -> Deciding[EmptyResult]:
    broker = BrokerRecord(
        node_id=request.node_id,
        directory_id=request.directory_id,
        boot_id=request.boot_id,
        endpoints={each.listener: Endpoint(each.host, each.port) for each in request.endpoints},
        peer=Endpoint(request.peer_host, request.peer_port),
        metadata_incarnation=request.metadata_incarnation,
    )
    named = leading.controller.name_cluster(request.cluster_id)
    registered = yield from leading.controller.brokers.register(broker)
    return Decision(named.records + registered.records, EmptyResult())


def _unregister_broker(leading: Leadership, request: brokers.UnregisterBroker) -> Deciding[EmptyResult]:
    decision = yield from leading.controller.brokers.unregister(request.node_id)
    return decision.answering(EmptyResult())


def _renew_replicas(leading: Leadership, request: brokers.RenewReplicas) -> Deciding[EmptyResult]:
    renewals: list[ReplicaRenewal] = []
    for each in request.replicas:
        renewals.append(ReplicaRenewal(each.topic_id, each.partition, each.incarnation))
        yield
    decision = yield from leading.controller.brokers.renew_replicas(
        request.node_id, request.directory_id, renewals
    )
    return decision.answering(EmptyResult())


def _allocate_producer_ids(
    leading: Leadership, request: brokers.AllocateProducerIds
) -> Deciding[brokers.AllocateProducerIdsResult]:
    yield
    decision = leading.controller.allocate_producer_ids()
    block = decision.response
    return decision.answering(brokers.AllocateProducerIdsResult(first=block.first, count=block.count))


def _describe_quorum(
    leading: Leadership, request: brokers.DescribeQuorum
) -> Deciding[brokers.DescribeQuorumResult]:
    yield
    return Decision((), quorum.describe(leading.replica, leading.image))


# -- topics -----------------------------------------------------------------------------------------------


def _create_topics(leading: Leadership, request: topics.CreateTopics) -> Deciding[topics.CreateTopicsResult]:
    wanted: list[NewTopic] = []
    for topic in request.topics:
        assignments: list[tuple[int, tuple[int, ...]]] = []
        for each in topic.assignments:
            assignments.append((each.partition, tuple(each.node_ids)))
            yield
        overrides: dict[str, str | None] = {}
        for setting in topic.settings:
            overrides[setting.name] = setting.value
            yield
        wanted.append(
            NewTopic(
                topic.name, topic.num_partitions, topic.replication_factor, tuple(assignments), overrides
            )
        )
        yield
    decision = yield from leading.controller.topics.create(
        wanted, validate_only=request.validate_only, is_internal=request.is_internal
    )
    return decision.answering((yield from _created(decision.response)))


def _create_missing_topics(
    leading: Leadership, request: topics.CreateMissingTopics
) -> Deciding[topics.CreateTopicsResult]:
    decision = yield from leading.controller.topics.create_missing(request.names)
    return decision.answering((yield from _created(decision.response)))


def _created(results: Sequence[TopicResult]) -> Generator[None, None, topics.CreateTopicsResult]:
    created: list[topics.CreatedTopic] = []
    for result in results:
        assert result.name is not None, "topics are created by name"
        created.append(
            topics.CreatedTopic(
                name=result.name,
                error_code=result.error,
                error_message=result.message,
                topic_id=result.topic_id or NIL_UUID,
                num_partitions=result.num_partitions,
                replication_factor=result.replication_factor,
                settings=_settings(result.configs),
            )
        )
        yield
    return topics.CreateTopicsResult(topics=created)


def _settings(configs: Mapping[str, str]) -> list[topics.TopicSetting]:
    return [topics.TopicSetting(name=name, value=value) for name, value in configs.items()]


def _delete_topics(leading: Leadership, request: topics.DeleteTopics) -> Deciding[topics.DeleteTopicsResult]:
    decision = yield from leading.controller.topics.delete(request.topic_ids)
    deleted: list[topics.DeletedTopic] = []
    for topic_id, refusal in decision.response.items():
        topic = topics.DeletedTopic(topic_id=topic_id)
        if refusal is not None:
            topic.error_code, topic.error_message = refusal.code, refusal.message
        deleted.append(topic)
        yield
    return decision.answering(topics.DeleteTopicsResult(topics=deleted))


def _create_partitions(
    leading: Leadership, request: topics.CreatePartitions
) -> Deciding[topics.CreatePartitionsResult]:
    wanted: list[NewPartitions] = []
    for asked in request.topics:
        assignments: list[tuple[int, ...]] = []
        for nodes in asked.assignments or ():
            assignments.append(tuple(nodes.node_ids))
            yield
        wanted.append(
            NewPartitions(asked.name, asked.count, None if asked.assignments is None else tuple(assignments))
        )
        yield
    decision = yield from leading.controller.topics.add_partitions(
        wanted, validate_only=request.validate_only
    )
    extended = []
    for result in decision.response:
        assert result.name is not None, "partitions are added by the topic's name"
        topic = topics.ExtendedTopic(name=result.name, error_code=result.error, error_message=result.message)
        if result.error == ErrorCode.NONE and not request.validate_only:
            assert result.topic_id is not None
            topic.topic_id = result.topic_id
            topic.first_partition = result.new_partitions.start
            topic.partition_count = len(result.new_partitions)
        extended.append(topic)
        yield
    return decision.answering(topics.CreatePartitionsResult(topics=extended))


def _find_deleted_topics(
    leading: Leadership, request: topics.FindDeletedTopics
) -> Deciding[topics.FindDeletedTopicsResult]:
    decision = yield from leading.controller.topics.find_deleted(request.topic_ids)
    return decision.answering(topics.FindDeletedTopicsResult(topic_ids=decision.response))


# -- replicas ---------------------------------------------------------------------------------------------


def _reassign_partitions(
    leading: Leadership, request: replicas.ReassignPartitions
) -> Deciding[replicas.ReassignPartitionsResult]:
    wanted: list[Reassignment] = []
    for each in request.partitions:
        node_ids = None if each.node_ids is None else tuple(each.node_ids)
        wanted.append(Reassignment(each.topic, each.partition, node_ids))
        yield
    decision = yield from leading.controller.reassignments.reassign(
        wanted, may_change_count=request.allow_replication_factor_change
    )
    results: list[ItemResult] = []
    for result in decision.response:
        results.append(ItemResult(error_code=result.error, error_message=result.message))
        yield
    return decision.answering(replicas.ReassignPartitionsResult(partitions=results))


def _list_reassignments(
    leading: Leadership, request: replicas.ListReassignments
) -> Deciding[replicas.ListReassignmentsResult]:
    decision = yield from leading.controller.reassignments.list_ongoing()
    ongoing: list[replicas.OngoingReassignment] = []
    for each in decision.response:
        ongoing.append(
            replicas.OngoingReassignment(
                topic=each.topic,
                partition=each.partition,
                node_ids=list(each.replicas),
                adding=list(each.adding),
                removing=list(each.removing),
            )
        )
        yield
    return decision.answering(replicas.ListReassignmentsResult(partitions=ongoing))


def _finish_reassignment(leading: Leadership, request: replicas.FinishReassignment) -> Deciding[EmptyResult]:
    voters = [ReplicaIdentity(each.node_id, each.directory_id, each.incarnation) for each in request.voters]
    decision = yield from leading.controller.reassignments.finish(
        request.topic_id, request.partition, voters, request.image_end
    )
    return decision.answering(EmptyResult())


# -- settings ---------------------------------------------------------------------------------------------


def _alter_configs(
    leading: Leadership, request: settings.AlterConfigs
) -> Deciding[settings.AlterConfigsResult]:
    wanted: list[ConfigAlteration] = []
    for each in request.resources:
        operations: list[tuple[str, int, str | None]] = []
        for x in each.operations:
            operations.append((x.name, x.operation, x.value))
            yield
        kind = _kind(each.resource_type)
        wanted.append(ConfigAlteration(kind, each.name, tuple(operations), request.replaces_all))
        yield
    decision = yield from leading.controller.settings.alter_configs(
        wanted, validate_only=request.validate_only
    )
    results: list[ItemResult] = []
    for result in decision.response:
        results.append(ItemResult(error_code=result.error, error_message=result.message))
        yield
    return decision.answering(settings.AlterConfigsResult(resources=results))


def _kind(resource_type: int) -> str:
    if resource_type not in KINDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    return KINDS[resource_type]


def _alter_quotas(leading: Leadership, request: settings.AlterQuotas) -> Deciding[settings.AlterQuotasResult]:
    wanted: list[QuotaAlteration] = []
    for quota in request.quotas:
        limits: list[tuple[str, float | None]] = []
        for x in quota.operations:
            limits.append((x.key, None if x.remove else x.limit))
            yield
        wanted.append(QuotaAlteration([(part.entity_type, part.name) for part in quota.entity], limits))
        yield
    decision = yield from leading.controller.settings.alter_quotas(
        wanted, validate_only=request.validate_only
    )
    results: list[ItemResult] = []
    for refused in decision.response:
        result = ItemResult()
        if refused is not None:
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
        yield
    return decision.answering(settings.AlterQuotasResult(quotas=results))


def _update_features(leading: Leadership, request: settings.UpdateFeatures) -> Deciding[EmptyResult]:
    wanted: list[FeatureUpdate] = []
    for each in request.features:
        wanted.append(FeatureUpdate(each.name, each.level, each.upgrade_type))
        yield
    decision = yield from leading.controller.features.update(wanted, validate_only=request.validate_only)
    return decision.answering(EmptyResult())


#: What nodes ask for themselves. They do not wait for what clients ask for.
OF_NODES = frozenset(
    {
        brokers.RegisterBroker,
        brokers.RenewReplicas,
        brokers.AllocateProducerIds,
        topics.FindDeletedTopics,
        replicas.FinishReassignment,
    }
)

#: By the class of the request; each function takes that class and returns what the class names as its result.
OPERATIONS: dict[type[Request[Any]], Callable[[Leadership, Any], Deciding[Any]]] = {
    brokers.RegisterBroker: _register_broker,
    brokers.UnregisterBroker: _unregister_broker,
    brokers.RenewReplicas: _renew_replicas,
    brokers.AllocateProducerIds: _allocate_producer_ids,
    brokers.DescribeQuorum: _describe_quorum,
    topics.CreateTopics: _create_topics,
    topics.CreateMissingTopics: _create_missing_topics,
    topics.DeleteTopics: _delete_topics,
    topics.CreatePartitions: _create_partitions,
    topics.FindDeletedTopics: _find_deleted_topics,
    replicas.ReassignPartitions: _reassign_partitions,
    replicas.ListReassignments: _list_reassignments,
    replicas.FinishReassignment: _finish_reassignment,
    settings.AlterConfigs: _alter_configs,
    settings.AlterQuotas: _alter_quotas,
    settings.UpdateFeatures: _update_features,
}
