"""DescribeClientQuotas: the quotas that match, as this broker knows them (KIP-546).

Behaviour: every component of the filter has to match a part of the entity. With `strict` the entity may have no other
part. A filter without components matches all quotas, or none with `strict`. Codes: broker.metadata.quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.quotas import QuotaFilter, matching
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
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


def handle(context: Context, request: Request, body: DescribeClientQuotasRequest) -> None:
    filters = [QuotaFilter(x.entity_type, x.match_type, x.match) for x in body.components]
    try:
        found = matching(context.image.quotas, filters, strict=body.strict)
    except KafkaError as error:
        response = DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)
    else:
        response = DescribeClientQuotasResponse(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in quota.entity],
                    values=[ValueData(key=key, value=value) for key, value in quota.limits.items()],
                )
                for quota in found
            ]
        )
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, DescribeClientQuotasRequest, handle)
