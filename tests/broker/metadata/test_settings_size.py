"""What clients set takes a bounded part of every node's memory."""

from __future__ import annotations

import random
import tracemalloc
from uuid import UUID

import pytest

from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.metadata.alterations import AlterOperation, ConfigAlteration
from broker.metadata.controller import Controller
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.ids import TRANSACTION_TOPIC_NAME
from broker.metadata.image import MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.record_codec import encode
from broker.metadata.records import BrokerRecord, Endpoint, KeyValue
from broker.metadata.requests import NewTopic
from broker.metadata.settings_size import configs_size, quota_size, values_size
from protocol.codec import at_once
from protocol.errors import ErrorCode

MAX_BYTES = 20_000
NAME = "consumer.session.timeout.ms"
CLEANER = "retention.ms"


class Cluster:
    def __init__(self, max_settings_bytes: int = MAX_BYTES) -> None:
        self.image = MetadataImage()
        self.controller = Controller(
            self.image,
            ControllerConfig(max_settings_bytes=max_settings_bytes),
            random.Random(1),
            is_alive=lambda broker: True,
            resources=Resources(LiveSettings(NodeConfig())),
        )
        broker = BrokerRecord(1, UUID(int=1), UUID(int=2), {}, Endpoint("h", 1))
        self.replay((encode(broker),))

    def replay(self, records: tuple[KeyValue, ...]) -> None:
        for record in records:
            self.image.replay(*record, self.image.end_offset, 1)

    def set_group(
        self, *names: str, value: str | None = "50000", operation: int = AlterOperation.SET
    ) -> list[ErrorCode]:
        wanted = [ConfigAlteration("group", name, ((NAME, operation, value),)) for name in names]
        decision = at_once(self.controller.settings.alter_configs(wanted))
        self.replay(decision.records)
        for result in decision.response:
            if result.error != ErrorCode.NONE:
                assert result.message is not None and "varve.max.settings.bytes" in result.message
        return [result.error for result in decision.response]

    def set_quota(self, *names: str, limit: float | None = 5.0) -> list[ErrorCode]:
        wanted = [QuotaAlteration([("client-id", name)], [("producer_byte_rate", limit)]) for name in names]
        decision = at_once(self.controller.settings.alter_quotas(wanted))
        self.replay(decision.records)
        return [ErrorCode.NONE if refused is None else refused.code for refused in decision.response]

    def create(self, *names: str) -> list[ErrorCode]:
        decision = at_once(
            self.controller.topics.create([NewTopic(name, 1, 1, configs={CLEANER: "5"}) for name in names])
        )
        self.replay(decision.records)
        return [result.error for result in decision.response]

    def counted(self) -> int:
        """What the image has, counted anew."""
        image = self.image
        groups = sum(
            configs_size(name, image.configs_of("group", name)) for name in image.configured("group")
        )
        quotas = sum(quota_size(entity, limits) for entity, limits in image.quotas.items())
        return groups + quotas + sum(values_size(topic.configs) for topic in image.topics.values())


def test_settings_of_further_groups_are_refused_and_the_others_can_be_changed() -> None:
    cluster = Cluster()
    names = [f"g{number}" for number in range(100)]
    codes = cluster.set_group(*names)
    refused = codes.count(ErrorCode.POLICY_VIOLATION)
    assert 50 < refused < 90 and set(codes) == {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}
    assert cluster.image.settings_bytes == cluster.counted() <= MAX_BYTES
    assert cluster.set_group("g0", value="50001") == [ErrorCode.NONE]
    assert cluster.set_group("new") == [ErrorCode.POLICY_VIOLATION]
    assert cluster.set_group("g0", "g1", value=None, operation=AlterOperation.DELETE) == [ErrorCode.NONE] * 2
    assert cluster.set_group("new") == [ErrorCode.NONE]


def test_long_names_count() -> None:
    cluster = Cluster()
    assert cluster.set_group("x" * 15_000) == [ErrorCode.NONE]
    assert cluster.set_group("y" * 15_000) == [ErrorCode.POLICY_VIOLATION]
    assert cluster.set_quota("z" * 15_000) == [ErrorCode.POLICY_VIOLATION]
    assert cluster.set_quota("small") == [ErrorCode.NONE]


def test_quotas_and_settings_of_new_topics_count() -> None:
    cluster = Cluster()
    codes = cluster.set_quota(*[f"c{number}" for number in range(25)])
    assert codes.count(ErrorCode.POLICY_VIOLATION) == 0
    codes = cluster.create(*[f"t{number}" for number in range(30)])
    assert codes[0] == ErrorCode.NONE and codes[-1] == ErrorCode.POLICY_VIOLATION
    assert cluster.image.settings_bytes == cluster.counted() <= MAX_BYTES


def test_what_clients_set_does_not_keep_topics_of_the_cluster_from_being_created() -> None:
    cluster = Cluster()
    codes = cluster.create(*[f"t{number}" for number in range(200)])
    assert codes[-1] is ErrorCode.POLICY_VIOLATION
    topic = NewTopic(TRANSACTION_TOPIC_NAME, 5, 1, configs={"cleanup.policy": "compact"})
    (result,) = at_once(cluster.controller.topics.create([topic], is_internal=True)).response
    assert result.error is ErrorCode.NONE


def test_the_size_follows_every_change() -> None:
    cluster, rng = Cluster(max_settings_bytes=1 << 30), random.Random(3)
    for number in range(300):
        name = f"n{rng.randrange(20)}"
        match rng.randrange(5):
            case 0:
                cluster.set_group(name, value=str(rng.randrange(46_000, 10**8)))
            case 1:
                cluster.set_group(name, value=None, operation=AlterOperation.DELETE)
            case 2:
                cluster.set_quota(name, limit=rng.choice([None, 5.0]))
            case 3:
                cluster.create(f"{name}-{number}")
            case _ if cluster.image.topics:
                topic_id = rng.choice(list(cluster.image.topics))
                cluster.replay(at_once(cluster.controller.topics.delete([topic_id])).records)
        assert cluster.image.settings_bytes == cluster.counted()
    for name in cluster.image.configured("group"):
        cluster.set_group(name, value=None, operation=AlterOperation.DELETE)
    cluster.set_quota(*[dict(entity)["client-id"] or "" for entity in cluster.image.quotas], limit=None)
    topic_ids = list(cluster.image.topics)
    cluster.replay(at_once(cluster.controller.topics.delete(topic_ids)).records)
    assert cluster.image.settings_bytes == 0


@pytest.mark.parametrize("text", ["x" * 20, "x" * 3000, "\N{GRINNING FACE}" * 700])
@pytest.mark.parametrize("kind", ["groups", "quotas"])
def test_about_as_much_memory_is_taken_as_is_counted(kind: str, text: str) -> None:
    cluster = Cluster(max_settings_bytes=1 << 30)
    names = [f"{number}{text}" for number in range(300)]
    tracemalloc.start()
    cluster.set_group(*names) if kind == "groups" else cluster.set_quota(*names)
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < cluster.image.settings_bytes * 1.1
