"""ApiVersions (18). Its response header is version 0 at every version (KIP-511)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, array, field


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = field(STRING, versions="3+", default="")
    client_software_version: str = field(STRING, versions="3+", default="")


class ApiVersion(Message):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Message):
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Message):
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = field(INT16, default=0)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), versions="3+", tag=0, default_factory=list
    )
    finalized_features_epoch: int = field(INT64, versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), versions="3+", tag=2, default_factory=list
    )
    zk_migration_ready: bool = field(BOOLEAN, versions="3+", tag=3, default=False)


def unsupported_version_body(min_version: int, max_version: int) -> bytes:
    """The answer to an ApiVersions request of a version that is not served.

    It has the layout of version 0, whatever the version of the request, and one entry: the versions with which the
    client may ask again. With a compact array, Java clients would read a throttle time of 20 minutes.
    """
    entry = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=min_version, max_version=max_version)
    return encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry]), 0)
