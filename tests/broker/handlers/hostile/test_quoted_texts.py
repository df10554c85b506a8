"""An error message may quote the request. And a value that a request of a newer version has set may be read in an older
version, whose texts have at most 32767 bytes. Each of these requests once ended the node that it was sent to."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import MAX_MESSAGE_CHARACTERS, ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntry,
    OpData,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.describe_client_quotas import EntityData
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.asking import ask
from tests.broker.world import World, running

LONG = "x" * 32767
SET, APPEND = 0, 2
TOPIC, GROUP, BROKER = 2, 32, 4
THROTTLED = "leader.replication.throttled.replicas"


def alter(world: World, version: int, kind: int, resource: str, *operations: tuple[str, int, str]) -> Any:
    configs = [
        AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in operations
    ]
    resources = [AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)]
    body = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answer = ask(world, 1, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, body, IncrementalAlterConfigsResponse)
    return answer.responses[0]


def test_an_error_message_quotes_the_beginning_of_a_long_value() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, f"not {LONG}")
    assert error.message is not None
    assert error.message.startswith("not xxx") and len(error.message) == MAX_MESSAGE_CHARACTERS + 3


def test_names_that_are_quoted_in_error_messages() -> None:
    with running(size=1) as world:
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name=LONG, configuration_keys=None)
        described = ask(
            world,
            1,
            ApiKey.DESCRIBE_CONFIGS,
            1,
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
        )
        assert described.results[0].error_code == ErrorCode.INVALID_REQUEST
        assert alter(world, 0, TOPIC, "foo", (LONG, 7, "")).error_code != ErrorCode.NONE
        topic = CreatableTopic(
            name="foo",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=LONG, value="1")],
        )
        body = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        created = ask(world, 1, ApiKey.CREATE_TOPICS, 2, body, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("entity_type", ["user", "client-id"])
def test_the_name_of_an_entity_with_a_quota_fits_into_every_version(entity_type: str) -> None:
    with running(size=1) as world:
        for name, expected in ((LONG, ErrorCode.NONE), (LONG + "x", ErrorCode.INVALID_REQUEST)):
            entry = AlterEntry(
                entity=[EntityData(entity_type=entity_type, entity_name=name)],
                ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
            )
            body = AlterClientQuotasRequest(entries=[entry], validate_only=False)
            answer = ask(world, 1, ApiKey.ALTER_CLIENT_QUOTAS, 1, body, AlterClientQuotasResponse)
            assert answer.entries[0].error_code == expected


def test_a_setting_does_not_grow_by_appending() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        parts = [f"{number}:1" for number in range(10_000)]
        first, second = ",".join(parts[:4000]), ",".join(parts[4000:8000])
        assert alter(world, 1, TOPIC, "foo", (THROTTLED, APPEND, first)).error_code == ErrorCode.NONE
        refused = alter(world, 1, TOPIC, "foo", (THROTTLED, APPEND, second))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (
            alter(world, 1, TOPIC, "foo", (THROTTLED, SET, first + "," + second)).error_code
            == ErrorCode.INVALID_REQUEST
        )


def test_a_group_with_an_impossible_id_has_no_settings() -> None:
    with running(size=1) as world:
        setting = ("consumer.session.timeout.ms", SET, "50000")
        assert alter(world, 1, GROUP, LONG, setting).error_code == ErrorCode.NONE
        assert alter(world, 1, GROUP, LONG + "x", setting).error_code == ErrorCode.INVALID_REQUEST
