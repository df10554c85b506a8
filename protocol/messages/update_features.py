"""UpdateFeatures (57): finalize the version of a feature (KIP-584)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Message, array, field


class FeatureUpdateKey(Message):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    """0: the feature is not finalized any more."""
    allow_downgrade: bool = field(BOOLEAN, versions="0", default=False)
    upgrade_type: int = field(INT8, versions="1+", default=1)
    """1: upgrade; 2: downgrade that loses nothing; 3: any downgrade."""


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOLEAN, versions="1+", default=False)


class UpdatableFeatureResult(Message):
    feature: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), versions="0-1", default_factory=list
    )
