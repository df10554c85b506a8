"""What clients set: settings of topics, brokers and groups, and quotas.

What results of one change stands in `broker.metadata.alterations` and `broker.metadata.quotas`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker.config.resources import Resources
from broker.metadata import quotas
from broker.metadata.alterations import AlterationResult, ConfigAlteration, altered
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.image import MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.record_codec import encode
from broker.metadata.records import Entity, KeyValue, QuotaRecord
from broker.metadata.requests import Deciding, Decision
from broker.metadata.settings_size import check_room, quota_size
from protocol.errors import ErrorCode, KafkaError


class SettingDecisions:
    def __init__(self, image: MetadataImage, config: ControllerConfig, resources: Resources) -> None:
        self._image = image
        self._config = config
        self._resources = resources

    def alter_configs(
        self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> Deciding[tuple[AlterationResult, ...]]:
        """Change settings. One result per entry, in order; each resource for itself."""
        requested = Counter((each.kind, each.name) for each in alterations)
        records: list[KeyValue] = []
        results: list[AlterationResult] = []
        used_bytes = self._image.settings_bytes
        for each in alterations:
            yield
            try:
                if requested[each.kind, each.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                change = yield from altered(self._image, each, self._resources)
                check_room(used_bytes, change.added_bytes, self._config.max_settings_bytes)
                records += change.records
                used_bytes += change.added_bytes
            except KafkaError as refused:
                results.append(AlterationResult(each.kind, each.name, refused.code, refused.message))
            else:
                results.append(AlterationResult(each.kind, each.name))
        return Decision(() if validate_only else tuple(records), tuple(results))

    def alter_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> Deciding[tuple[KafkaError | None, ...]]:
        """What is wrong with each, in order; None: nothing. Of an entity that is named twice the first counts."""
        changed: dict[Entity, QuotaRecord] = {}
        known = set(self._image.quotas)
        results: list[KafkaError | None] = []
        used_bytes = self._image.settings_bytes
        for wanted in alterations:
            yield
            try:
                record = quotas.altered(self._image.quotas, wanted)
                before = self._image.quotas.get(record.entity, {})
                added_bytes = quota_size(record.entity, record.limits) - quota_size(record.entity, before)
                check_room(used_bytes, added_bytes, self._config.max_settings_bytes)
                if record.entity in changed:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is named twice in the request")
                if record.entity not in known and len(known) >= self._config.max_quotas:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION, f"there are {self._config.max_quotas} quotas"
                    )
            except KafkaError as refused:
                # Its traceback refers to this function, which refers to the results: a cycle (broker.garbage).
                results.append(refused.with_traceback(None))
            else:
                changed[record.entity] = record
                known.add(record.entity)
                used_bytes += added_bytes
                results.append(None)
        records = []
        for entity, record in changed.items():
            if record.limits != self._image.quotas.get(entity, {}):
                records.append(encode(record))
            yield
        return Decision(() if validate_only else tuple(records), tuple(results))
