"""DescribeLogDirs: the sizes of the replicas of this broker, and of its disk (KIP-113, KIP-827).

Behaviour: a broker shows only its own replicas; clients ask each broker. Null asks for all replicas. Partitions that
have no replica here are left out, without an error. The size is that of the segments, so deleted records count until
their segment is deleted. There is one directory: no replica moves to another one (is_future_key), and offset_lag is 0.

Versions: 2 flexible; 3 error_code; 4 total_bytes and usable_bytes; 5 is_cordoned, which is always false.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeLogDirsRequest) -> Steps:
    by_name = context.replicas.by_name
    wanted: Iterable[tuple[str, int]]
    if body.topics is None:
        wanted = list(by_name)
    else:
        wanted = ((named.topic, index) for named in body.topics for index in named.partitions)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, index in wanted:
        yield
        replica = by_name.get((name, index))
        if replica is not None:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = DescribeLogDirsTopic(name=name, partitions=[])
            size = DescribeLogDirsPartition(
                partition_index=index,
                partition_size=replica.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            topic.partitions.append(size)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=os.path.abspath(context.config.log_dir),
        topics=list(topics.values()),
        total_bytes=context.volume.total_bytes(),
        usable_bytes=context.volume.free_bytes(),
    )
    yield from steps.reply(request, DescribeLogDirsResponse(results=[result]))


API = Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, DescribeLogDirsRequest, handle)
