"""The controller's records can be replayed, whatever clients have asked for, and the replay gives the controller's
image. A record that cannot be read would end every node at every start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from broker.config.group_config import GROUP_KEYS
from broker.config.sources import NODE_KEYS
from broker.config.topic_config import TOPIC_KEYS
from broker.metadata.alterations import ConfigAlteration
from broker.metadata.controller import Controller
from broker.metadata.image import MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.records import KeyValue
from broker.metadata.requests import Deciding, NewPartitions, NewTopic, Reassignment
from protocol.codec import at_once
from tests.broker.metadata.test_metadata_controller import Cluster

T = TypeVar("T")


def mostly(usual: Sequence[T], odd: Sequence[T]) -> st.SearchStrategy[T]:
    """Odd values are rare: a request with many of them does not pass the first check."""
    return st.sampled_from([*(list(usual) * (2 if len(usual) > 2 else 4)), *odd])


NAMES = mostly(
    ("a", "b", "a.b"),
    ("", "1", "..", "a/b", "%2F", "=,", "\0", "\n", "ü", "\U0001f480", "x" * 249, "x" * 40_000),
)
VALUES = mostly(
    ("1", "50000", "true", "compact"),
    ("", "-1", "delete,compact", "1:2", "*", "1e999", "nan", "٣", "9" * 5000, "1" * 40_000),
)
SETTINGS = {
    "topic": tuple(TOPIC_KEYS),
    "group": tuple(GROUP_KEYS),
    "broker": tuple(key.name for key in NODE_KEYS.values() if key.is_dynamic),
}
QUOTAS = st.builds(
    QuotaAlteration,
    st.lists(st.tuples(mostly(("user", "client-id"), ("ip", "")), NAMES | st.none()), min_size=1, max_size=2),
    st.lists(
        st.tuples(
            mostly(("producer_byte_rate", "request_percentage"), ("connection_creation_rate", "x")),
            mostly((1.0, 0.5, None), (0.0, -1.0, 1e308, 5e-324, 2.0**63, math.inf, math.nan)),
        ),
        min_size=1,
        max_size=2,
    ),
)


def config_alterations(kind: str) -> st.SearchStrategy[ConfigAlteration]:
    settings = mostly(SETTINGS[kind], ("", "x", "x" * 40_000))
    operation = st.tuples(settings, mostly((0,), (1, 2, 3, 4)), VALUES | st.none())
    return st.builds(
        ConfigAlteration,
        st.just(kind),
        NAMES,
        st.lists(operation, min_size=1, max_size=2).map(tuple),
        st.booleans(),
    )


CONFIGS = st.sampled_from(tuple(SETTINGS)).flatmap(config_alterations)
REPLICAS = st.lists(mostly((1, 2, 3), (-1, 4)), min_size=1, max_size=3).map(tuple)
COUNTS = mostly((-1, 1, 2, 3), (-(2**31), -2, 0, 2**31 - 1))
TOPICS = st.builds(
    NewTopic,
    NAMES,
    COUNTS,
    COUNTS,
    mostly(((),), (((0, (1, 2)), (1, (2, 3))), ((1, (1,)),), ((0, ()),), ((0, (1, 1)),))),
    st.just({}) | st.dictionaries(st.sampled_from(SETTINGS["topic"]), VALUES | st.none(), max_size=2),
)
MORE = st.builds(NewPartitions, NAMES, COUNTS, st.none() | st.lists(REPLICAS, max_size=3).map(tuple))
MOVES = st.builds(Reassignment, NAMES, mostly((0, 1), (-1, 2**31 - 1)), REPLICAS | st.none())

Question = Callable[[Controller], "Deciding[Any]"]


def asked(
    method_of: Callable[[Controller], Callable[..., Deciding[Any]]], items: st.SearchStrategy[Any]
) -> st.SearchStrategy[Question]:
    several = st.lists(items, min_size=1, max_size=3)
    return several.map(lambda wanted: lambda controller: method_of(controller)(wanted))


QUESTIONS: st.SearchStrategy[Question] = st.one_of(
    asked(lambda controller: controller.settings.alter_quotas, QUOTAS),
    asked(lambda controller: controller.settings.alter_configs, CONFIGS),
    asked(lambda controller: controller.topics.create, TOPICS),
    asked(lambda controller: controller.topics.add_partitions, MORE),
    asked(lambda controller: controller.reassignments.reassign, MOVES),
    asked(lambda controller: controller.topics.delete, NAMES),
)


@given(st.lists(QUESTIONS, max_size=12))
def test_the_records_of_every_decision_can_be_replayed(questions: list[Question]) -> None:
    cluster = Cluster()
    log: list[KeyValue] = []
    for ask in questions:
        for record in at_once(ask(cluster.controller)).records:
            cluster.image.replay(*record, cluster.image.end_offset, 1)
            log.append(record)
    started = Cluster().image
    for record in log:
        started.replay(*record, started.end_offset, 1)
    assert seen(started) == seen(cluster.image)


def seen(image: MetadataImage) -> tuple[object, ...]:
    configured = [
        (kind, name, image.configs_of(kind, name))
        for kind in ("broker", "group")
        for name in image.configured(kind)
    ]
    return (dict(image.topics), dict(image.quotas), configured, dict(image.brokers), image.partition_count)
