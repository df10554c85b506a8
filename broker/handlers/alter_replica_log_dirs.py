"""AlterReplicaLogDirs: move a replica of this broker to another of its directories (KIP-113).

Behaviour: a node has one directory. For this directory the answer is NONE, for any other LOG_DIR_NOT_FOUND. A partition
that has no replica here: REPLICA_NOT_AVAILABLE, as Apache Kafka answers.

Versions: 2 flexible.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterReplicaLogDirsRequest) -> Steps:
    here = os.path.abspath(context.config.log_dir)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in body.dirs:
        for topic in folder.topics:
            result = results.get(topic.name)
            if result is None:
                result = AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[])
                results[topic.name] = result
            for index in topic.partitions:
                is_here = folder.path == here
                error = _error(context, topic.name, index) if is_here else ErrorCode.LOG_DIR_NOT_FOUND
                answer = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                result.partitions.append(answer)
                yield
    yield from steps.reply(request, AlterReplicaLogDirsResponse(results=list(results.values())))


def _error(context: Context, topic: str, partition: int) -> ErrorCode:
    if (topic, partition) in context.replicas.by_name:
        return ErrorCode.NONE
    why = context.view.why_no_replica(topic, partition)
    return ErrorCode.REPLICA_NOT_AVAILABLE if why is ErrorCode.NOT_LEADER_OR_FOLLOWER else why


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, AlterReplicaLogDirsRequest, handle)
