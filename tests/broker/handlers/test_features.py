"""Clients change finalized levels by UpdateFeatures and learn them from ApiVersions. Requests of both kinds of
transactions are served at every level. The answers were compared with those of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.asking import ask
from tests.broker.groups.world import coordinator
from tests.broker.transactions.client import FEW, Client
from tests.broker.world import World, running

TXN, GROUP = "transaction.version", "group.version"
UP, SAFE = 1, 2
NONE = ErrorCode.NONE


def told(world: World, node_id: int = 1, version: int = 4) -> ApiVersionsResponse:
    body = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    return ask(world, node_id, ApiKey.API_VERSIONS, version, body, ApiVersionsResponse)


def finalized(answer: ApiVersionsResponse) -> dict[str, int]:
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def update(
    world: World,
    *updates: tuple[str, int, int],
    node_id: int = 1,
    version: int = 2,
    validate_only: bool = False,
) -> UpdateFeaturesResponse:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level, upgrade_type in updates
    ]
    body = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return ask(world, node_id, ApiKey.UPDATE_FEATURES, version, body, UpdateFeaturesResponse)


@pytest.mark.parametrize("version", [3, 4])
def test_clients_are_told_the_features(version: int) -> None:
    with running(1) as world:
        answer = told(world, version=version)
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        # Java before 3.9 cannot read a version 0.
        assert supported == ({} if version == 3 else {GROUP: (0, 1), TXN: (0, 2)})
        assert finalized(answer) == {GROUP: 1, TXN: 2}
    with running(1, settings={"group.coordinator.rebalance.protocols": "classic"}) as world:
        assert finalized(told(world, version=version)) == {TXN: 2}


def test_a_level_is_told_by_the_node_that_was_asked_and_then_by_all_and_outlives_restarts() -> None:
    with running() as world:
        for node_id, level, levels in ((1, 1, {GROUP: 1, TXN: 1}), (2, 0, {GROUP: 1})):
            before = told(world, node_id)
            answer = update(world, (TXN, level, SAFE), node_id=node_id)
            assert (answer.error_code, answer.error_message) == (NONE, None)
            after = told(world, node_id)
            assert finalized(after) == levels
            assert after.finalized_features_epoch > before.finalized_features_epoch, (
                "clients ignore it otherwise"
            )
            images = [node.metadata.image for node in world.nodes.values()]
            world.wait(lambda ends=images: len({image.end_offset for image in ends}) == 1)  # type: ignore[misc]
            assert [finalized(told(world, other)) for other in world.ids] == [levels] * 3
        for node_id in world.ids:
            world.stop(node_id)
        world.start_all()
        assert [finalized(told(world, node_id)) for node_id in world.ids] == [{GROUP: 1}] * 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_have_a_result_for_each_feature(version: int) -> None:
    def results(answer: UpdateFeaturesResponse) -> list[tuple[str, int, str | None]]:
        return [(each.feature, each.error_code, each.error_message) for each in answer.results]

    with running(1) as world:
        assert update(world, (TXN, 1, SAFE)).error_code == NONE
        done = update(world, (TXN, 2, UP), (TXN, 2, UP), version=version)
        assert done.error_code == NONE
        assert results(done) == ([] if version == 2 else [(TXN, NONE, None)] * 2)
        refused = update(world, (TXN, 3, UP), version=version)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert refused.error_message and not refused.results
        assert finalized(told(world))[TXN] == 2
        assert update(world, version=version).error_code == NONE, "an update of nothing"


def test_version_0_cannot_downgrade() -> None:
    with running(1) as world:
        key = FeatureUpdateKey(feature=TXN, max_version_level=1, allow_downgrade=True)
        body = UpdateFeaturesRequest(feature_updates=[key])
        answer = ask(world, 1, ApiKey.UPDATE_FEATURES, 0, body, UpdateFeaturesResponse)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_validation_changes_nothing() -> None:
    with running(1) as world:
        assert update(world, (TXN, 1, SAFE), validate_only=True).error_code == NONE
        refused = update(world, (GROUP, 0, SAFE), validate_only=True)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "group.coordinator.rebalance.protocols" in (refused.error_message or "")
        assert finalized(told(world)) == {GROUP: 1, TXN: 2}


@pytest.mark.parametrize("level", [2, 1, 0])
def test_transactions_of_both_kinds_are_served_at_every_level(level: int) -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo")
        assert update(world, (TXN, level, UP if level == 2 else SAFE)).error_code == NONE
        coordinator(world, "g")
        first, second = Client(world, "first", version=1), Client(world, "second", version=2)
        old, new = first.new_producer(), second.new_producer()
        assert first.add(old, "foo", 0) == [NONE]
        assert first.add_offsets(old, "g") == NONE
        for client, producer in ((first, old), (second, new)):
            assert client.produce(producer, "foo") == NONE
            assert client.commit_offset(producer, "g", "foo", 1) == NONE
        assert (first.end(old).error_code, first.state) == (NONE, "CompleteCommit")
        ended = second.end(new)
        assert (ended.error_code, ended.producer_epoch) == (NONE, new[1] + 1)
        assert second.state == "CompleteCommit"
