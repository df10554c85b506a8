"""The checks on a new topic that do not need to know which brokers are alive.

Codes and order are those of Apache Kafka 4.3 (client-behaviour.md B.2). Every check raises KafkaError.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from broker.metadata.ids import INTERNAL_TOPICS, METADATA_TOPIC_NAME, topic_name_problem
from broker.metadata.image import MetadataImage, fold_name
from broker.metadata.records import TopicRecord
from broker.metadata.requests import BROKER_DEFAULT, NewPartitions, NewTopic
from protocol.errors import ErrorCode, KafkaError


def check_name(name: str) -> None:
    if (problem := topic_name_problem(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_is_not_internal(name: str) -> None:
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the cluster and cannot be created")


def check_is_new(name: str, image: MetadataImage, folded_names: Mapping[str, str]) -> None:
    """`folded_names`: what this request creates before this one, by folded name."""
    if name == METADATA_TOPIC_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} belongs to the cluster and cannot be created")
    if image.topic_named(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    folded = fold_name(name)
    other = image.colliding_topic(name) or folded_names.get(folded)
    if folded == METADATA_TOPIC_NAME:
        other = METADATA_TOPIC_NAME
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} collides with {other}: '.' and '_' are the same in metric names",
        )


def check_configs(topic: NewTopic) -> dict[str, str]:
    """The overrides, none of them null. Whether keys and values are valid is for broker.config.topic_config."""
    without_value = sorted(name for name, value in topic.configs.items() if value is None)
    if without_value:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"configs without a value: {', '.join(without_value)}")
    return {name: value for name, value in topic.configs.items() if value is not None}


def check_counts(topic: NewTopic) -> None:
    """Partition count and replication factor as sent, before anything is allocated for them."""
    if topic.assignments:
        if topic.replication_factor != BROKER_DEFAULT or topic.num_partitions != BROKER_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "with a manual assignment, partition count and replication factor have to be -1",
            )
        return
    if topic.replication_factor < BROKER_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "the replication factor is 1 or more, or -1 for the default",
        )
    if topic.num_partitions < BROKER_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "the number of partitions is 1 or more, or -1 for the default"
        )


def check_assignments(topic: NewTopic, image: MetadataImage) -> Generator[None, None, list[tuple[int, ...]]]:
    """A manual assignment as one tuple of node ids per partition, in the order of partitions."""
    by_partition = dict(topic.assignments)
    problem: str | None = None
    if len(by_partition) != len(topic.assignments):
        problem = "a partition is assigned twice"
    elif sorted(by_partition) != list(range(len(by_partition))):
        problem = "partitions have to be numbered from 0 without gaps"
    elif len({len(replicas) for replicas in by_partition.values()}) > 1:
        problem = "all partitions need the same number of replicas"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    placed = [tuple(by_partition[partition]) for partition in range(len(by_partition))]
    yield from _check_replicas(placed, 0, image)
    return placed


def check_new_partitions(
    wanted: NewPartitions, topic: TopicRecord, image: MetadataImage
) -> Generator[None, None, list[tuple[int, ...]] | None]:
    """The manual assignment of the partitions that are to be added to a topic; None where the controller chooses."""
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    if wanted.assignments is None:
        return None
    problem: str | None = None
    if len(wanted.assignments) != wanted.count - present:
        problem = f"{wanted.count - present} partitions are added, and {len(wanted.assignments)} assigned"
    elif {len(replicas) for replicas in wanted.assignments} != {len(topic.partitions[0].replicas)}:
        problem = "all partitions of a topic need the same number of replicas"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    yield from _check_replicas(wanted.assignments, present, image)
    return list(wanted.assignments)


def _check_replicas(
    placed: Sequence[tuple[int, ...]], first: int, image: MetadataImage
) -> Generator[None, None, None]:
    """`first`: number of the first of these partitions."""
    for partition, replicas in enumerate(placed, first):
        yield
        problem: str | None = None
        if not replicas:
            problem = f"partition {partition} has no replica"
        elif len(set(replicas)) != len(replicas):
            problem = f"partition {partition} names a broker twice"
        else:
            unknown = [node_id for node_id in replicas if node_id not in image.brokers]
            if not unknown:
                continue
            problem = f"partition {partition} names broker {unknown[0]}, which is not registered"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
