"""Which levels of features can be finalized. The codes are what Apache Kafka 4.3.1 answers to the same updates."""

from __future__ import annotations

import pytest

from broker.metadata.features import FEATURES
from broker.metadata.image import FeatureChanged, MetadataImage
from broker.metadata.record_codec import MetadataRecordError, decode, encode
from broker.metadata.records import FeatureRecord
from broker.metadata.requests import FeatureUpdate
from protocol.codec import at_once
from protocol.errors import ErrorCode, KafkaError
from tests.broker.metadata.test_metadata_controller import Cluster

TXN = "transaction.version"
UP, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def update(cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False) -> int:
    """The level of transaction.version afterwards."""
    wanted = [FeatureUpdate(*each) for each in updates]
    cluster.apply(cluster.controller.features.update(wanted, validate_only=validate_only))
    return cluster.image.feature_level(TXN)


def refusal(cluster: Cluster, *updates: tuple[str, int, int]) -> str:
    """Why nothing is changed."""
    with pytest.raises(KafkaError) as refused:
        at_once(cluster.controller.features.update([FeatureUpdate(*each) for each in updates]))
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
    return refused.value.message or ""


def test_the_highest_level_is_the_default_and_takes_no_record(cluster: Cluster) -> None:
    assert cluster.image.feature_level(TXN) == 2
    assert not at_once(cluster.controller.features.update([FeatureUpdate(TXN, 2, UP)])).records


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_levels_go_down_and_up(cluster: Cluster, kind: int) -> None:
    assert update(cluster, (TXN, 1, kind)) == 1
    assert update(cluster, (TXN, 1, kind)) == 1, "the present level is no error, whatever the type"
    assert update(cluster, (TXN, 1, UP)) == 1
    assert update(cluster, (TXN, 0, kind)) == 0
    assert update(cluster, (TXN, 2, UP)) == 2


def test_updates_that_are_refused(cluster: Cluster) -> None:
    assert update(cluster, (TXN, 1, SAFE)) == 1
    for bad, reason in (
        (("nope", 1, UP), "not known"),
        (("nope", 0, SAFE), "not known"),
        (("", 1, UP), "not known"),
        ((TXN, 3, UP), "supports 0 to 2"),
        ((TXN, -1, UNSAFE), "supports 0 to 2"),
        ((TXN, 0, UP), "allows no downgrade"),
        ((TXN, 2, SAFE), "is a downgrade"),
        ((TXN, 2, UNSAFE), "is a downgrade"),
        ((TXN, 2, 0), "no upgrade type 0"),
        ((TXN, 1, 4), "no upgrade type 4"),
        (("group.version", 1, UP), "group.coordinator.rebalance.protocols"),
        (("group.version", 0, UNSAFE), "group.coordinator.rebalance.protocols"),
    ):
        assert reason in refusal(cluster, bad)
        assert reason in refusal(cluster, (TXN, 2, UP), bad), "all are updated, or none"


def test_of_a_feature_that_is_named_twice_the_last_counts(cluster: Cluster) -> None:
    assert update(cluster, (TXN, 7, UP), (TXN, 1, SAFE), (TXN, 0, SAFE)) == 0
    refusal(cluster, (TXN, 2, UP), (TXN, 7, UP))


def test_a_validation_changes_nothing(cluster: Cluster) -> None:
    assert update(cluster, (TXN, 1, SAFE), validate_only=True) == 2
    refusal(cluster, (TXN, 3, UP))


def test_the_image_tells_what_changes() -> None:
    image = MetadataImage()
    story = [(2, None), (1, FeatureChanged(TXN, 1)), (1, None), (2, FeatureChanged(TXN, 2))]
    for offset, (level, change) in enumerate(story):
        assert image.replay(*encode(FeatureRecord(TXN, level)), offset, 1) == change
        assert image.copy().feature_level(TXN) == level


def test_a_record_names_its_feature() -> None:
    for name, feature in FEATURES.items():
        if feature.setting is None:
            record = FeatureRecord(name, feature.highest)
            assert encode(record).key == f"feature/{name}".encode()
            assert decode(*encode(record)) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"feature/transaction.version", b'{"version":0,"level":3}'),
        (b"feature/transaction.version", b'{"version":0,"level":-1}'),
        (b"feature/transaction.version", b'{"version":0}'),
        (b"feature/transaction.version", None),
        (b"feature/group.version", b'{"version":0,"level":1}'),
        (b"feature/nope", b'{"version":0,"level":1}'),
        (b"feature", b'{"version":0,"level":1}'),
    ],
)
def test_a_node_does_not_go_on_with_a_level_that_it_does_not_know(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MetadataRecordError):
        decode(key, value)
