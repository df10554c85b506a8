"""Topics, created, deleted and created again as an administrator would."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.simulator.client import Client
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
#: Virtual seconds that a topic lives before it is deleted, on average.
MEAN_LIFE_S = 1.5
MEAN_ABSENCE_S = 0.2


async def create_topic(client: Client, plan: TopicPlan) -> None:
    """Until it is there: answers get lost, and then it exists already."""
    topic = CreatableTopic(
        name=plan.name,
        num_partitions=plan.partitions_at_first,
        replication_factor=plan.replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in plan.configs],
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    while True:
        try:
            connection = await client.any_broker()
            answer = await connection.request(
                ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body, CreateTopicsResponse
            )
            code = answer.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            assert code in RETRIABLE, (ErrorCode(code), answer.topics[0].error_message)
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(RETRY_S)


async def recreate_topic(client: Client, plan: TopicPlan, seed: int) -> None:
    """Delete it and create it again under the same name, while others use it."""
    rng = random.Random(seed)
    deleted: set[UUID] = set()
    for _ in range(plan.times_recreated):
        await asyncio.sleep(rng.expovariate(1 / MEAN_LIFE_S))
        await _delete_topic(client, plan.name, deleted)
        await asyncio.sleep(rng.expovariate(1 / MEAN_ABSENCE_S))
        await create_topic(client, plan)


async def _delete_topic(client: Client, name: str, deleted: set[UUID]) -> None:
    """Until it is gone. By id: a request by name that comes late would delete the next one. `deleted`: those that were,
    which an old answer may still name."""
    topic_id: UUID | None = None
    while True:
        try:
            if topic_id is None:
                described = await client.metadata(name)
                if described.error_code == ErrorCode.NONE and described.topic_id not in deleted:
                    topic_id = described.topic_id
            else:
                connection = await client.any_broker()
                body = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1000)
                answer = await connection.request(
                    ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION, body, DeleteTopicsResponse
                )
                code = answer.responses[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                    deleted.add(topic_id)
                    return
                assert code in RETRIABLE, ErrorCode(code)
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(RETRY_S)
