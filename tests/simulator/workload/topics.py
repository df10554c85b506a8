"""Topics, created and deleted as an administrator would."""

from __future__ import annotations

import asyncio

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.simulator.client import Client
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

CREATE_TOPICS_VERSION = 5


async def create_topic(client: Client, name: str, partitions: int) -> None:
    """Until it is there: answers get lost, and then it exists already."""
    body = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)],
        timeout_ms=1000,
    )
    while True:
        try:
            connection = await client.any_broker()
            answer = await connection.request(
                ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body, CreateTopicsResponse
            )
            code = answer.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            assert code in RETRIABLE, ErrorCode(code)
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(RETRY_S)
