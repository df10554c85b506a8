"""AlterReplicaLogDirs and DescribeLogDirs; the codes are those of Apache Kafka 4.3 to the same requests."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.broker.asking import ask
from tests.broker.world import World, running


def move(
    world: World, node_id: int, path: str, topic: str, *partitions: int, version: int = 2
) -> list[ErrorCode]:
    folder = AlterReplicaLogDir(
        path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[*partitions])]
    )
    body = AlterReplicaLogDirsRequest(dirs=[folder])
    answer = ask(world, node_id, ApiKey.ALTER_REPLICA_LOG_DIRS, version, body, AlterReplicaLogDirsResponse)
    (result,) = answer.results
    assert (result.topic_name, [x.partition_index for x in result.partitions]) == (topic, [*partitions])
    return [ErrorCode(partition.error_code) for partition in result.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_stays_in_the_one_directory(version: int) -> None:
    with running() as world:
        world.create_topic("foo", replication_factor=1)
        has_it = world.leader("foo")
        has_not = next(node_id for node_id in world.nodes if node_id != has_it)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert move(world, has_it, f"/n{has_it}", "foo", 0, 7, version=version) == [ErrorCode.NONE, unknown]
        assert move(world, has_it, "/elsewhere", "foo", 0, version=version) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert move(world, has_not, f"/n{has_not}", "foo", 0, version=version) == [
            ErrorCode.REPLICA_NOT_AVAILABLE
        ]
        assert move(world, has_it, f"/n{has_it}", "bar", 0, version=version) == [unknown]


def test_no_directory_is_cordoned() -> None:
    with running() as world:
        body = DescribeLogDirsRequest(topics=None)
        (result,) = ask(world, 1, ApiKey.DESCRIBE_LOG_DIRS, 5, body, DescribeLogDirsResponse).results
        assert not result.is_cordoned
