"""AlterClientQuotas: forwarded to the controller; answered when the quotas are committed (KIP-546).

Behaviour: each entity is altered by itself. INVALID_REQUEST (42): the entity cannot have a quota, or not this limit. A
node applies a quota as soon as it has replayed it. `controller_mutation_rate` is stored and has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
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


def handle(context: Context, request: Request, body: AlterClientQuotasRequest) -> Steps:
    wanted = AlterQuotas(quotas=[], validate_only=body.validate_only)
    for entry in body.entries:
        altered = AlteredQuota(entity=[], operations=[])
        for part in entry.entity:
            altered.entity.append(QuotaEntity(entity_type=part.entity_type, name=part.entity_name))
            yield
        for x in entry.ops:
            altered.operations.append(QuotaOperation(key=x.key, limit=x.value, remove=x.remove))
            yield
        wanted.quotas.append(altered)
        yield

    def answer(result: AlterQuotasResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, body, result))

    context.controller.call(wanted, answer)


def _answer(
    request: Request, body: AlterClientQuotasRequest, result: AlterQuotasResult | KafkaError
) -> Steps:
    response = AlterClientQuotasResponse(entries=[])
    for position, entry in enumerate(body.entries):
        altered = AlteredEntry(entity=entry.entity)
        if isinstance(result, KafkaError):
            altered.error_code, altered.error_message = result.code, result.message
        else:
            item = result.quotas[position]
            altered.error_code, altered.error_message = item.error_code, item.error_message
        response.entries.append(altered)
        yield
    yield from steps.reply(request, response)


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, AlterClientQuotasRequest, handle)
