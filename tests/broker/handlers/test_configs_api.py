"""The APIs of settings, over the wire of whole nodes. Codes and sources are those that Apache Kafka 4.3.1 answered to
the same requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.incremental_alter_configs import AlterableConfig as Change
from protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.broker.asking import ask
from tests.broker.world import World, running

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, INVALID_CONFIG, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


@pytest.fixture
def world() -> Iterator[World]:
    with running() as made:
        made.create_topic("t", 2)
        yield made


def describe(
    world: World, node_id: int, type_: int, name: str, *keys: str, synonyms: bool = True, version: int = 4
) -> DescribeConfigsResult:
    body = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=type_, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=True,
    )
    answer = ask(world, node_id, ApiKey.DESCRIBE_CONFIGS, version, body, DescribeConfigsResponse)
    (result,) = answer.results
    return result


def rows(
    world: World, node_id: int, type_: int, name: str, *keys: str
) -> dict[str, DescribeConfigsResourceResult]:
    result = describe(world, node_id, type_, name, *keys)
    assert result.error_code == NONE
    return {row.name: row for row in result.configs}


def value(world: World, node_id: int, type_: int, name: str, key: str) -> tuple[str | None, int]:
    row = rows(world, node_id, type_, name, key)[key]
    return row.value, row.config_source


def change(
    world: World,
    node_id: int,
    type_: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    body = IncrementalAlterConfigsRequest(
        resources=[
            ChangedResource(
                resource_type=type_,
                resource_name=name,
                configs=[Change(name=key, config_operation=how, value=text) for key, how, text in changes],
            )
        ],
        validate_only=validate_only,
    )
    answer = ask(world, node_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body, IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (type_, name)
    return ErrorCode(result.error_code)


def replace(world: World, type_: int, name: str, *configs: tuple[str, str | None]) -> ErrorCode:
    body = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=[AlterableConfig(name=key, value=text) for key, text in configs],
            )
        ]
    )
    answer = ask(world, 1, ApiKey.ALTER_CONFIGS, 2, body, AlterConfigsResponse)
    return ErrorCode(answer.responses[0].error_code)


# -- topics -----------------------------------------------------------------------------------------------------


def test_a_topic_shows_all_its_settings_with_types_sources_and_synonyms(world: World) -> None:
    assert change(world, 2, TOPIC, "t", ("retention.ms", SET, "1000")) == NONE
    shown = rows(world, 2, TOPIC, "t")
    assert len(shown) == 33
    retention = shown["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("1000", 1, 5)
    assert [(x.name, x.value, x.source) for x in retention.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert retention.documentation
    types = {name: row.config_type for name, row in shown.items()}
    expected = {
        "cleanup.policy": 7, "compression.type": 2, "preallocate": 1, "segment.bytes": 3, "segment.ms": 5,
        "min.cleanable.dirty.ratio": 6, "leader.replication.throttled.replicas": 7, "min.insync.replicas": 3,
    }  # fmt: skip
    assert {name: types[name] for name in expected} == expected
    assert not any(row.read_only or row.is_sensitive for row in shown.values())


def test_only_what_is_named_is_shown_and_old_versions_leave_the_rest_out(world: World) -> None:
    assert list(rows(world, 1, TOPIC, "t", "segment.bytes", "unknown")) == ["segment.bytes"]
    old = describe(world, 1, TOPIC, "t", "segment.bytes", synonyms=False, version=1).configs[0]
    assert (old.value, old.synonyms, old.documentation) == ("1073741824", [], None)


@pytest.mark.parametrize(
    ("type_", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (99, "t", INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_described(world: World, type_: int, name: str, code: ErrorCode) -> None:
    result = describe(world, 1, type_, name)
    assert (result.error_code, result.configs) == (code, [])


def test_a_changed_setting_is_visible_at_once_on_the_broker_that_was_asked(world: World) -> None:
    for node_id in (1, 2, 3):
        assert change(world, node_id, TOPIC, "t", ("retention.ms", SET, str(node_id))) == NONE
        assert value(world, node_id, TOPIC, "t", "retention.ms") == (str(node_id), 1)
        assert change(world, node_id, TOPIC, "t", ("retention.ms", DELETE, None)) == NONE
        assert value(world, node_id, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_lists_are_appended_to_and_subtracted_from(world: World) -> None:
    def policy() -> str | None:
        return value(world, 1, TOPIC, "t", "cleanup.policy")[0]

    for how, text, result in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, "compact, delete", "compact,delete"),
        (SET, "delete,delete", "delete,delete"),
    ]:
        assert change(world, 1, TOPIC, "t", ("cleanup.policy", how, text)) == NONE
        assert policy() == result


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "5")], INVALID_CONFIG),
        ([("leader.replication.throttled.replicas", APPEND, "x")], INVALID_CONFIG),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("unknown", SET, "1")], INVALID_CONFIG),
        ([("unknown", DELETE, None)], NONE),
        ([("retention.ms", SET, "soon")], INVALID_CONFIG),
        ([("retention.ms", 9, "1")], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("segment.bytes", SET, "x")], INVALID_CONFIG),
        ([("min.compaction.lag.ms", SET, "77"), ("max.compaction.lag.ms", SET, "7")], INVALID_CONFIG),
        ([], NONE),
    ],
)
def test_a_change_is_made_as_a_whole_or_refused(
    world: World, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert change(world, 1, TOPIC, "t", *changes) == code
    assert {row.config_source for row in rows(world, 1, TOPIC, "t").values()} == {5}


def test_settings_that_contradict_what_was_set_before_are_refused(world: World) -> None:
    assert change(world, 1, TOPIC, "t", ("max.compaction.lag.ms", SET, "7")) == NONE
    assert change(world, 1, TOPIC, "t", ("min.compaction.lag.ms", SET, "77")) == INVALID_CONFIG


@pytest.mark.parametrize(
    ("type_", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", INVALID_REQUEST),
        (TOPIC, "__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (99, "t", INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_changed(world: World, type_: int, name: str, code: ErrorCode) -> None:
    assert change(world, 1, type_, name, ("retention.ms", SET, "1")) == code


def test_validation_alone_changes_nothing(world: World) -> None:
    assert change(world, 1, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == NONE
    assert change(world, 1, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True) == INVALID_CONFIG
    assert value(world, 1, TOPIC, "t", "retention.ms")[1] == 5


def test_a_resource_that_is_named_twice_is_refused_twice_and_the_others_are_changed(world: World) -> None:
    def resource(name: str) -> ChangedResource:
        configs = [Change(name="retention.ms", config_operation=SET, value="9")]
        return ChangedResource(resource_type=TOPIC, resource_name=name, configs=configs)

    world.create_topic("u")
    body = IncrementalAlterConfigsRequest(resources=[resource("t"), resource("u"), resource("t")])
    answer = ask(world, 1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body, IncrementalAlterConfigsResponse)
    assert [x.error_code for x in answer.responses] == [INVALID_REQUEST, NONE, INVALID_REQUEST]
    assert value(world, 1, TOPIC, "u", "retention.ms")[0] == "9"


def test_alter_configs_replaces_everything(world: World) -> None:
    assert replace(world, TOPIC, "t", ("retention.ms", "5"), ("segment.bytes", "4096")) == NONE
    assert replace(world, TOPIC, "t", ("segment.bytes", "8192")) == NONE
    changed = [row.name for row in rows(world, 1, TOPIC, "t").values() if row.config_source == 1]
    assert changed == ["segment.bytes"]
    assert replace(world, TOPIC, "t", ("retention.ms", None)) == INVALID_REQUEST
    assert replace(world, TOPIC, "t", ("unknown", "1")) == INVALID_CONFIG
    assert replace(world, TOPIC, "t") == NONE
    assert not [row for row in rows(world, 1, TOPIC, "t").values() if row.config_source == 1]


# -- brokers ----------------------------------------------------------------------------------------------------


def test_a_broker_shows_its_own_settings_and_which_can_be_changed(world: World) -> None:
    shown = rows(world, 2, BROKER, "2")
    assert (shown["node.id"].value, shown["node.id"].config_source) == ("2", 4)
    assert shown["node.id"].read_only and not shown["log.retention.ms"].read_only
    assert shown["listeners"].value == "PLAINTEXT://n2:9092,CONTROLLER://n2:9093"
    assert shown["listeners"].config_type == 7


def test_settings_for_one_broker_come_before_those_for_all_and_topics_follow(world: World) -> None:
    assert change(world, 1, BROKER, "", ("log.retention.ms", SET, "7000")) == NONE
    assert change(world, 1, BROKER, "1", ("log.retention.ms", SET, "1000")) == NONE
    synonyms = rows(world, 1, BROKER, "1")["log.retention.ms"].synonyms
    assert [(x.value, x.source) for x in synonyms] == [("1000", 2), ("7000", 3), ("604800000", 5)]
    assert list(rows(world, 1, BROKER, "")) == ["log.retention.ms"]
    world.wait(lambda: world.replica(2, "t").config.retention_ms == 7000)
    assert value(world, 2, BROKER, "2", "log.retention.ms") == ("7000", 3)
    assert value(world, 1, TOPIC, "t", "retention.ms") == ("1000", 2)
    assert value(world, 2, TOPIC, "t", "retention.ms") == ("7000", 3)
    assert world.replica(1, "t").config.retention_ms == 1000
    assert change(world, 1, TOPIC, "t", ("retention.ms", SET, "5")) == NONE
    assert value(world, 1, TOPIC, "t", "retention.ms") == ("5", 1)
    assert replace(world, BROKER, "1") == NONE
    assert value(world, 1, BROKER, "1", "log.retention.ms") == ("7000", 3)


def test_settings_of_brokers_survive_a_restart(world: World) -> None:
    assert change(world, 3, BROKER, "", ("log.segment.bytes", SET, "123456")) == NONE
    assert change(world, 3, BROKER, "3", ("max.connections.per.ip", SET, "77")) == NONE
    world.kill(3, power=True)
    world.start(3)
    world.wait_ready(3)
    assert value(world, 3, BROKER, "3", "log.segment.bytes") == ("123456", 3)
    assert world.nodes[3].connections._settings.config.max_connections_per_ip == 77
    assert world.replica(3, "t").log.config.segment_bytes == 123456


def test_settings_without_effect_here_are_stored_for_the_tools_that_set_them(world: World) -> None:
    rate = "leader.replication.throttled.rate"
    assert change(world, 1, BROKER, "", (rate, SET, "7")) == NONE
    assert value(world, 1, BROKER, "", rate) == ("7", 3)
    assert value(world, 1, BROKER, "1", rate) == ("7", 3)
    assert change(world, 1, BROKER, "1", (rate, SET, "8")) == NONE
    assert value(world, 1, BROKER, "1", rate) == ("8", 2)
    for name in ("1", ""):
        assert change(world, 1, BROKER, name, (rate, DELETE, None)) == NONE
    assert rate not in rows(world, 1, BROKER, "1")


@pytest.mark.parametrize(
    ("name", "change_", "code"),
    [
        ("1", ("node.id", SET, "9"), INVALID_REQUEST),
        ("", ("log.dirs", SET, "/x"), INVALID_REQUEST),
        ("1", ("log.retention.hours", SET, "2"), INVALID_REQUEST),
        ("", ("num.partitions", SET, "5"), INVALID_REQUEST),
        ("1", ("no.such.setting", SET, "5"), INVALID_REQUEST),
        ("1", ("log.retention.ms", SET, "x"), INVALID_REQUEST),
        ("", ("message.max.bytes", SET, str(200 << 20)), INVALID_REQUEST),
        ("2", ("log.retention.ms", SET, "1"), INVALID_REQUEST),
        ("x", ("log.retention.ms", SET, "1"), INVALID_REQUEST),
        ("", ("leader.replication.throttled.rate", SET, "1000"), NONE),
        ("", ("log.cleanup.policy", APPEND, "compact"), NONE),
    ],
)
def test_which_settings_of_brokers_can_be_changed(
    world: World, name: str, change_: tuple[str, int, str], code: ErrorCode
) -> None:
    assert change(world, 1, BROKER, name, change_) == code


# -- what changes at once ---------------------------------------------------------------------------------------


def test_a_change_takes_effect_at_once_on_all_replicas(world: World) -> None:
    changes = {
        "segment.bytes": "2048", "min.insync.replicas": "3", "max.message.bytes": "5000",
        "cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime",
    }  # fmt: skip
    assert change(world, 1, TOPIC, "t", *((key, SET, text) for key, text in changes.items())) == NONE
    replicas = [world.replica(node_id, "t", partition) for node_id in (1, 2, 3) for partition in (0, 1)]
    world.wait(lambda: all(replica.config.max_message_bytes == 5000 for replica in replicas))
    for replica in replicas:
        assert replica.log.config.segment_bytes == 2048
        assert replica.group.min_durable == 3
        assert replica.record_rules.is_compacted
        assert replica.record_rules.timestamp_type == 1


def test_shorter_retention_deletes_without_waiting_for_the_next_round(world: World) -> None:
    assert change(world, 1, TOPIC, "t", ("segment.bytes", SET, "1024")) == NONE
    leader = world.replica(world.leader("t"), "t")
    world.wait(lambda: leader.log.config.segment_bytes == 1024)
    for _ in range(4):
        world.produce("t", b"x" * 900)
    assert change(world, 1, TOPIC, "t", ("retention.bytes", SET, "1000")) == NONE
    world.wait(
        lambda: all(world.replica(node_id, "t").log.start_offset >= 2 for node_id in (1, 2, 3)), limit_s=2
    )


def test_lowering_min_insync_replicas_answers_a_producer_that_waits_for_a_third_copy(world: World) -> None:
    assert change(world, 1, TOPIC, "t", ("min.insync.replicas", SET, "3")) == NONE
    leader = world.leader("t")
    world.wait(lambda: world.replica(leader, "t").config.min_insync_replicas == 3)
    other = next(node_id for node_id in world.ids if node_id != leader)
    world.kill(other)
    replica = world.replica(leader, "t")
    done: list[ErrorCode] = []

    class Waiter:
        def partition_done(self, slot: int, error: ErrorCode) -> None:
            done.append(error)

    world.processes[leader].call(replica.waits.add_commit, world.produce("t", b"x") + 1, Waiter(), 0)
    assert not done
    assert change(world, leader, TOPIC, "t", ("min.insync.replicas", SET, "2")) == NONE
    assert done == [NONE]


# -- groups -----------------------------------------------------------------------------------------------------


def test_a_group_has_settings_of_its_own_before_it_exists(world: World) -> None:
    assert sorted(rows(world, 1, GROUP, "g")) == [
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    ]
    assert value(world, 1, GROUP, "g", "consumer.session.timeout.ms") == ("45000", 5)
    assert change(world, 1, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == NONE
    row = rows(world, 1, GROUP, "g")["consumer.session.timeout.ms"]
    assert [(x.name, x.value, x.source) for x in row.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert value(world, 1, GROUP, "other", "consumer.session.timeout.ms") == ("45000", 5)
    assert change(world, 1, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)) == NONE
    assert value(world, 1, GROUP, "g", "consumer.session.timeout.ms") == ("45000", 5)


@pytest.mark.parametrize(
    ("key", "text", "error"),
    [
        ("nonsense", "1", INVALID_CONFIG),
        ("consumer.session.timeout.ms", "abc", INVALID_CONFIG),
        ("consumer.session.timeout.ms", "5000", INVALID_CONFIG),  # not longer than the heartbeat interval
        ("consumer.heartbeat.interval.ms", "0", INVALID_CONFIG),
    ],
)
def test_invalid_settings_of_a_group_are_refused(world: World, key: str, text: str, error: ErrorCode) -> None:
    assert change(world, 1, GROUP, "g", (key, SET, text)) == error


def test_a_group_without_a_name_has_no_settings(world: World) -> None:
    assert change(world, 1, GROUP, "", ("consumer.session.timeout.ms", SET, "50000")) == INVALID_REQUEST
    assert describe(world, 1, GROUP, "").error_code == INVALID_REQUEST


# -- names ------------------------------------------------------------------------------------------------------


def test_resources_with_settings_are_listed(world: World) -> None:
    def listed(version: int, *types: int) -> tuple[int, list[tuple[int, str]]]:
        body = ListConfigResourcesRequest(resource_types=list(types))
        answer = ask(world, 1, ApiKey.LIST_CONFIG_RESOURCES, version, body, ListConfigResourcesResponse)
        return answer.error_code, [(x.resource_type, x.resource_name) for x in answer.config_resources]

    brokers = [(BROKER, "1"), (BROKER, "2"), (BROKER, "3")]
    assert listed(1) == (NONE, [(TOPIC, "t"), *brokers])
    assert listed(1, BROKER) == (NONE, brokers)
    assert listed(1, 8, 16) == (NONE, [])
    assert change(world, 1, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == NONE
    assert listed(1, GROUP) == (NONE, [(GROUP, "g")])
    assert listed(1, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert listed(0) == (NONE, [])
