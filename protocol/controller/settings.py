"""What clients set: settings of topics, brokers and groups, quotas, and levels of features."""

from __future__ import annotations

from protocol.controller.request import EmptyResult, ItemResult, Request, Result
from protocol.schema import BOOLEAN, FLOAT64, INT8, INT16, STRING, Message, array, field


class SettingOperation(Message):
    """As in Kafka's IncrementalAlterConfigs."""

    name: str = field(STRING)
    operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


class AlteredResource(Message):
    resource_type: int = field(INT8)
    """Kafka's number."""
    name: str = field(STRING)
    operations: list[SettingOperation] = field(array(SettingOperation))


class AlterConfigsResult(Result, flexible="0+"):
    resources: list[ItemResult] = field(array(ItemResult))
    """In the order of the request."""


class AlterConfigs(Request[AlterConfigsResult], flexible="0+"):
    resources: list[AlteredResource] = field(array(AlteredResource))
    replaces_all: bool = field(BOOLEAN)
    """What is not named goes back to its default."""
    validate_only: bool = field(BOOLEAN)

    def is_answered_by(self, result: AlterConfigsResult) -> bool:
        return len(result.resources) == len(self.resources)


class QuotaEntity(Message):
    """One part of whom a quota is for."""

    entity_type: str = field(STRING)
    name: str | None = field(STRING, nullable="0+")
    """None: the default of this type."""


class QuotaOperation(Message):
    key: str = field(STRING)
    limit: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)
    """The limit goes; `limit` says nothing then."""


class AlteredQuota(Message):
    entity: list[QuotaEntity] = field(array(QuotaEntity))
    operations: list[QuotaOperation] = field(array(QuotaOperation))


class AlterQuotasResult(Result, flexible="0+"):
    quotas: list[ItemResult] = field(array(ItemResult))
    """In the order of the request."""


class AlterQuotas(Request[AlterQuotasResult], flexible="0+"):
    quotas: list[AlteredQuota] = field(array(AlteredQuota))
    validate_only: bool = field(BOOLEAN)

    def is_answered_by(self, result: AlterQuotasResult) -> bool:
        return len(result.quotas) == len(self.quotas)


class UpdatedFeature(Message):
    name: str = field(STRING)
    level: int = field(INT16)
    upgrade_type: int = field(INT8)
    """As in Kafka's UpdateFeatures."""


class UpdateFeatures(Request[EmptyResult], flexible="0+"):
    """All are updated, or the request is refused and none is."""

    features: list[UpdatedFeature] = field(array(UpdatedFeature))
    validate_only: bool = field(BOOLEAN)
