"""ApiVersions: the APIs that are served and their versions, and the features (broker.metadata.features).

Behaviour: the response header is version 0 at every version; an unknown version is answered in the exact version 0
layout with UNSUPPORTED_VERSION and the served range (client-behaviour.md A.2), so that a newer client can use an older
version; a bad client software name is INVALID_REQUEST with no entries. Telemetry is not offered: clients would use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.metadata.features import FEATURES, GROUP_VERSION, Feature
from broker.serving.api import Api
from protocol.api_keys import FIRST_OWN_KEY, ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    unsupported_version_body,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: Request, body: ApiVersionsRequest) -> None:
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[])
    names = (body.client_software_name, body.client_software_version)
    if request.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        response.error_code = ErrorCode.INVALID_REQUEST
    else:
        response.api_keys = offered(context.apis)
        _add_features(context, response, request.api_version)
    request.reply_bytes(encode(response, request.api_version))


def offered(apis: Iterable[Api]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=api.key,
            min_version=api.min_version if api.advertised_min_version is None else api.advertised_min_version,
            max_version=api.max_version,
        )
        for api in sorted(apis, key=lambda api: api.key)
        if api.key < FIRST_OWN_KEY
    ]


def _add_features(context: Context, response: ApiVersionsResponse, version: int) -> None:
    """Supported levels begin at 0 and are shown from version 4 on, because older Java clients cannot parse a 0
    (KAFKA-17011). A client believes the answer with the highest epoch, whichever broker gave it, so the epoch tells
    how far this node has replayed the metadata."""
    if version >= 4:
        response.supported_features = [
            SupportedFeatureKey(name=feature.name, min_version=0, max_version=feature.highest)
            for feature in FEATURES.values()
        ]
    response.finalized_features_epoch = context.image.end_offset
    response.finalized_features = [
        FinalizedFeatureKey(name=feature.name, min_version_level=level, max_version_level=level)
        for feature in FEATURES.values()
        if (level := _finalized(context, feature)) > 0
    ]


def _finalized(context: Context, feature: Feature) -> int:
    if feature is GROUP_VERSION:
        return feature.highest if "consumer" in context.config.group_protocols else 0
    return context.image.feature_level(feature.name)


def answer_unknown_version(request: Request) -> None:
    """The body is not read, because its layout is unknown."""
    request.reply_bytes(unsupported_version_body(API.min_version, API.max_version))


API = Api(
    ApiKey.API_VERSIONS,
    0,
    4,
    ApiVersionsRequest,
    handle,
    answer_unknown_version=answer_unknown_version,
)
