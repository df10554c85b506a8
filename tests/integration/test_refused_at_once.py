"""What a client can ask for is answered or refused at once. None of it hangs until the client's timeout."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.integration.harness import BrokerCluster, eventually

#: Long enough for a busy machine, and far below every default timeout of a client.
AT_ONCE_S = 15
Call = Callable[[AdminClient, str], Any]
ACL = AclBinding(
    ResourceType.TOPIC,
    "t",
    ResourcePatternType.LITERAL,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
ANY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type] # any name, user and host: what the stubs of confluent-kafka do not know
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)
UPSERTION = UserScramCredentialUpsertion(
    "u", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
)


class Asked(NamedTuple):
    method: str
    call: Call
    error: str | None = None
    """The name of librdkafka's error. None: it is done."""


def _config(kind: ResourceType, name: str, key: str) -> list[ConfigResource]:
    entry = ConfigEntry(key, "1000", incremental_operation=AlterConfigOpType.SET)
    return [ConfigResource(kind, name, incremental_configs=[entry])]


def _old_config(admin: AdminClient, topic: str) -> Any:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"retention.ms": "1000"})])


def _old_groups(admin: AdminClient, topic: str) -> Any:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return admin.list_groups(timeout=AT_ONCE_S)


def _offsets(group: str, topic: str | None, offset: int = 0) -> list[ConsumerGroupTopicPartitions]:
    partitions = None if topic is None else [TopicPartition(topic, 0, offset)]
    return [ConsumerGroupTopicPartitions(group, partitions)]


#: Of those that Varve lacks, and of some that are wrong, how they are refused. Codes are those of Apache Kafka 4.3,
#: where it refuses the same; it has SCRAM users, which an authorizer would need.
ASKED = [
    Asked("create_topics", lambda admin, topic: admin.create_topics([NewTopic(f"{topic}-new", 1, 1)])),
    Asked(
        "create_topics",
        lambda admin, topic: admin.create_topics([NewTopic(topic, 1, 1)]),
        "TOPIC_ALREADY_EXISTS",
    ),
    Asked("create_topics", lambda admin, _: admin.create_topics([NewTopic("a b", 1, 1)]), "TOPIC_EXCEPTION"),
    Asked(
        "create_topics",
        lambda admin, topic: admin.create_topics([NewTopic(f"{topic}-9", 1, 9)]),
        "INVALID_REPLICATION_FACTOR",
    ),
    Asked("delete_topics", lambda admin, topic: admin.delete_topics([f"{topic}-new"])),
    Asked("delete_topics", lambda admin, _: admin.delete_topics(["nosuch"]), "UNKNOWN_TOPIC_OR_PART"),
    Asked("create_partitions", lambda admin, topic: admin.create_partitions([NewPartitions(topic, 2)])),
    Asked(
        "create_partitions",
        lambda admin, topic: admin.create_partitions([NewPartitions(topic, 1)]),
        "INVALID_PARTITIONS",
    ),
    Asked("describe_topics", lambda admin, topic: admin.describe_topics(TopicCollection([topic]))),
    Asked(
        "describe_topics",
        lambda admin, _: admin.describe_topics(TopicCollection(["nosuch"])),
        "UNKNOWN_TOPIC_OR_PART",
    ),
    Asked("list_topics", lambda admin, _: admin.list_topics(timeout=AT_ONCE_S)),
    Asked("describe_cluster", lambda admin, _: admin.describe_cluster(include_authorized_operations=True)),
    Asked("cluster_id", lambda admin, _: admin.cluster_id(AT_ONCE_S)),
    Asked(
        "describe_configs",
        lambda admin, topic: admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]),
    ),
    Asked(
        "describe_configs", lambda admin, _: admin.describe_configs([ConfigResource(ResourceType.GROUP, "g")])
    ),
    Asked(
        "describe_configs",
        lambda admin, _: admin.describe_configs([ConfigResource(ResourceType.TRANSACTIONAL_ID, "x")]),
        "_BAD_MSG",
    ),
    Asked("alter_configs", _old_config),
    Asked(
        "incremental_alter_configs",
        lambda admin, topic: admin.incremental_alter_configs(
            _config(ResourceType.TOPIC, topic, "retention.ms")
        ),
    ),
    Asked(
        "incremental_alter_configs",
        lambda admin, topic: admin.incremental_alter_configs(_config(ResourceType.TOPIC, topic, "nosuch")),
        "INVALID_CONFIG",
    ),
    Asked(
        "list_offsets",
        lambda admin, topic: admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}),
    ),
    Asked(
        "list_offsets",
        lambda admin, _: admin.list_offsets({TopicPartition("nosuch", 0): OffsetSpec.latest()}),
        "_NOENT",
    ),
    Asked("delete_records", lambda admin, topic: admin.delete_records([TopicPartition(topic, 0, 0)])),
    Asked(
        "delete_records",
        lambda admin, topic: admin.delete_records([TopicPartition(topic, 0, 99)]),
        "OFFSET_OUT_OF_RANGE",
    ),
    Asked("elect_leaders", lambda admin, _: admin.elect_leaders(ElectionType.PREFERRED)),
    Asked(
        "elect_leaders",
        lambda admin, topic: admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]),
    ),
    Asked("list_groups", _old_groups),
    Asked("list_consumer_groups", lambda admin, _: admin.list_consumer_groups()),
    Asked("describe_consumer_groups", lambda admin, _: admin.describe_consumer_groups(["nosuch"])),
    Asked(
        "delete_consumer_groups",
        lambda admin, _: admin.delete_consumer_groups(["nosuch"]),
        "GROUP_ID_NOT_FOUND",
    ),
    Asked(
        "alter_consumer_group_offsets",
        lambda admin, topic: admin.alter_consumer_group_offsets(_offsets(topic, topic)),
    ),
    Asked(
        "list_consumer_group_offsets",
        lambda admin, topic: admin.list_consumer_group_offsets(_offsets(topic, None)),
    ),
    Asked("create_acls", lambda admin, _: admin.create_acls([ACL]), "SECURITY_DISABLED"),
    Asked("delete_acls", lambda admin, _: admin.delete_acls([ANY_ACL]), "SECURITY_DISABLED"),
    # Apache Kafka refuses this, too. librdkafka passes over it where nothing is found.
    Asked("describe_acls", lambda admin, _: admin.describe_acls(ANY_ACL)),
    Asked(
        "describe_user_scram_credentials",
        lambda admin, _: admin.describe_user_scram_credentials(["u"]),
        "_UNSUPPORTED_FEATURE",
    ),
    Asked(
        "alter_user_scram_credentials",
        lambda admin, _: admin.alter_user_scram_credentials([UPSERTION]),
        "_UNSUPPORTED_FEATURE",
    ),
    Asked(
        "alter_user_scram_credentials",
        lambda admin, _: admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)]
        ),
        "_UNSUPPORTED_FEATURE",
    ),
]
#: They ask no broker.
LOCAL_METHODS = {"poll", "set_sasl_credentials"}


def test_every_method_of_the_admin_client_is_asked() -> None:
    methods = {name for name in dir(AdminClient) if not name.startswith("_")}
    assert methods - LOCAL_METHODS == {asked.method for asked in ASKED}


def _outcome(asked: Asked, admin: AdminClient, topic: str) -> str | None:
    """The name of the error, or None. Raises TimeoutError if there is no answer."""
    answer = asked.call(admin, topic)
    futures = answer.values() if isinstance(answer, dict) else [answer]
    for future in futures:
        if isinstance(future, Future):
            try:
                future.result(AT_ONCE_S)
            except KafkaException as refused:
                return str(refused.args[0].name())
    return None


def test_an_admin_client_has_each_of_its_answers_at_once(cluster: BrokerCluster, topic: str) -> None:
    """One after the other, as the list says: some make what the next ones ask for.

    The topic of the groups is there before: librdkafka asks three times within half a second who coordinates a group,
    and then not until its timeout. A busy machine takes longer to create the topic."""
    with cluster.wire() as wire:
        question = FindCoordinatorRequest(key_type=0, coordinator_keys=[topic])
        eventually(
            lambda: wire.call(question, 4).coordinators[0].error_code == 0, "a coordinator", timeout_s=60
        )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    outcomes = [(asked.method, _outcome(asked, admin, topic)) for asked in ASKED]
    assert outcomes == [(asked.method, asked.error) for asked in ASKED]


def _first_error(client: Consumer | ShareConsumer, errors: list[KafkaError]) -> KafkaError:
    """Of a client that cannot work: what its application is told first."""
    for _ in range(10 * AT_ONCE_S):
        try:
            message = client.poll(0.1)
        except KafkaException as raised:
            told: KafkaError = raised.args[0]
            return told
        if isinstance(message, Message) and (error := message.error()) is not None:
            return error
        if errors:
            return errors[0]
    raise AssertionError("the application is told nothing")


def test_a_share_consumer_is_told_that_there_are_no_share_groups(cluster: BrokerCluster, topic: str) -> None:
    """librdkafka asked without end for ShareGroupHeartbeat, which was not offered, and told nobody."""
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    error = _first_error(consumer, [])
    assert error.code() == KafkaError.UNSUPPORTED_VERSION
    assert error.fatal()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_client_that_would_log_in_is_told_that_it_cannot(cluster: BrokerCluster, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "g",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "u",
        "sasl.password": "p",
        "error_cb": errors.append,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    error = _first_error(consumer, errors)
    assert error.name() == "_AUTHENTICATION"
    assert "SASL state" in error.str(), "the broker has answered"
    consumer.close()


def test_a_consumer_with_an_unknown_assignor_is_told_so(cluster: BrokerCluster, topic: str) -> None:
    settings = {"group.id": topic, "group.protocol": "consumer", "group.remote.assignor": "nosuch"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    assert "assignor" in _first_error(consumer, []).str()
    consumer.close()


def test_a_producer_with_too_long_a_transaction_timeout_is_told_so(
    cluster: BrokerCluster, topic: str
) -> None:
    settings = {"transactional.id": topic, "transaction.timeout.ms": 2**31 - 1}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(AT_ONCE_S)
    assert refused.value.args[0].name() == "INVALID_TRANSACTION_TIMEOUT"
