"""AlterClientQuotas: forwarded to the controller; answered when the quotas are committed (KIP-546).

Behaviour: each entity is altered by itself. INVALID_REQUEST (42): the entity cannot have a quota, or not this limit. A
node applies a quota as soon as it has replayed it. `controller_mutation_rate` is stored and has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.controller.request import ItemResult
from protocol.controller.settings import (
    AlteredQuota,
    AlterQuotas,
    AlterQuotasResult,
    QuotaEntity,
    QuotaOperation,
)
from protocol.errors import KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterClientQuotasRequest) -> None:
    wanted = AlterQuotas(
        quotas=[
            AlteredQuota(
                entity=[QuotaEntity(entity_type=x.entity_type, name=x.entity_name) for x in entry.entity],
                operations=[QuotaOperation(key=x.key, limit=x.value, remove=x.remove) for x in entry.ops],
            )
            for entry in body.entries
        ],
        validate_only=body.validate_only,
    )

    def answer(result: AlterQuotasResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        if isinstance(result, KafkaError):
            items = [ItemResult(error_code=result.code, error_message=result.message)] * len(body.entries)
        else:
            items = result.quotas
        response = AlterClientQuotasResponse(
            entries=[
                AlteredEntry(
                    error_code=item.error_code, error_message=item.error_message, entity=entry.entity
                )
                for entry, item in zip(body.entries, items, strict=True)
            ]
        )
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call(wanted, answer)


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, AlterClientQuotasRequest, handle)
