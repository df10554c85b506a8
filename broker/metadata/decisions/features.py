"""Finalized levels of features (`broker.metadata.features`). What is refused, and how, is as in Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Sequence

from broker.metadata.features import FEATURES, UpgradeType
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import encode
from broker.metadata.records import FeatureRecord, KeyValue
from broker.metadata.requests import Deciding, Decision, FeatureUpdate
from protocol.errors import ErrorCode, KafkaError


class FeatureDecisions:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> Deciding[None]:
        """Finalize these levels. Raises KafkaError(INVALID_UPDATE_VERSION) if one of them cannot be; none is then. Of a
        feature that is named twice the last counts."""
        wanted: dict[str, FeatureUpdate] = {}
        for update in updates:
            wanted[update.name] = update
            yield
        records: list[KeyValue] = []
        for update in wanted.values():
            if (problem := self._problem(update)) is not None:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"No feature is changed: {update.name} cannot have level {update.level}: {problem}",
                )
            if update.level != self._image.feature_level(update.name):
                records.append(encode(FeatureRecord(update.name, update.level)))
            yield
        return Decision(() if validate_only else tuple(records), None)

    def _problem(self, update: FeatureUpdate) -> str | None:
        """Why the level cannot be finalized; None: it can."""
        feature = FEATURES.get(update.name)
        if feature is None:
            return "this feature is not known here"
        if feature.setting is not None:
            return f"the setting {feature.setting} of each node decides about it"
        if not 0 <= update.level <= feature.highest:
            return f"this build supports 0 to {feature.highest}"
        if update.upgrade_type not in tuple(UpgradeType):
            return f"there is no upgrade type {update.upgrade_type}"
        level = self._image.feature_level(update.name)
        is_upgrade_type = update.upgrade_type == UpgradeType.UPGRADE
        if update.level < level and is_upgrade_type:
            return f"it has level {level}, and the upgrade type allows no downgrade"
        if update.level > level and not is_upgrade_type:
            return f"it has level {level}, and the upgrade type is a downgrade"
        return None
