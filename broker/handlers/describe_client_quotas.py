"""DescribeClientQuotas: the quotas that match, as this broker knows them (KIP-546).

Behaviour: every component of the filter has to match a part of the entity. With `strict` the entity may have no other
part. A filter without components matches all quotas, or none with `strict`. Codes: broker.metadata.quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.quotas import QuotaFilter, check_filters, matches
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.limits import check_count
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeClientQuotasRequest) -> Steps:
    response = DescribeClientQuotasResponse()
    try:
        check_count(ApiKey.DESCRIBE_CLIENT_QUOTAS, len(body.components))
        filters = [QuotaFilter(x.entity_type, x.match_type, x.match) for x in body.components]
        check_filters(filters)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    else:
        response.entries = entries = []
        for entity, limits in list(context.image.quotas.items()):
            if matches(entity, filters, strict=body.strict):
                entry = EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in limits.items()],
                )
                entries.append(entry)
            yield
    yield from steps.reply(request, response)


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, DescribeClientQuotasRequest, handle)
