"""UpdateFeatures: the finalized levels of features, which clients learn from ApiVersions (KIP-584); forwarded to the
controller. Answered when they are committed, and this node tells them.

Behaviour: all features of a request are updated, or none is and the answer as a whole has the error, at every version.
INVALID_UPDATE_VERSION (95): a feature or a level that is not supported, a downgrade unless the upgrade type says so, an
upgrade if it does. Versions 0 and 1 have a result for each feature of a request that is not refused. Version 0 has no
upgrade type, so it cannot downgrade; `allow_downgrade` has no effect. All of that as in Apache Kafka 4.3. Here
group.version cannot be updated, because a setting decides about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.request import EmptyResult
from protocol.controller.settings import UpdatedFeature, UpdateFeatures
from protocol.errors import KafkaError
from protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: UpdateFeaturesRequest) -> Steps:
    wanted = UpdateFeatures(features=[], validate_only=body.validate_only)
    for x in body.feature_updates:
        wanted.features.append(
            UpdatedFeature(name=x.feature, level=x.max_version_level, upgrade_type=x.upgrade_type)
        )
        yield

    def answer(result: EmptyResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, body, result))

    context.controller.call(wanted, answer)


def _answer(request: Request, body: UpdateFeaturesRequest, result: EmptyResult | KafkaError) -> Steps:
    response = UpdateFeaturesResponse()
    if isinstance(result, KafkaError):
        response.error_code, response.error_message = result.code, result.message
    elif request.api_version <= 1:
        for update in body.feature_updates:
            response.results.append(UpdatableFeatureResult(feature=update.feature))
            yield
    yield from steps.reply(request, response)


API = Api(ApiKey.UPDATE_FEATURES, 0, 2, UpdateFeaturesRequest, handle)
