"""AlterClientQuotas: forwarded to the controller; answered when the quotas are committed (KIP-546).

Behaviour: each entity is dealt with by itself; INVALID_REQUEST (42) for one that cannot have a quota, and for a limit
that it cannot have. All nodes keep to a quota as soon as they have replayed it. `controller_mutation_rate` is
kept and has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterClientQuotasRequest) -> None:
    arguments = {
        "validate_only": body.validate_only,
        "entries": [
            {
                "entity": [(part.entity_type, part.entity_name) for part in entry.entity],
                "limits": [(op.key, None if op.remove else op.value) for op in entry.ops],
            }
            for entry in body.entries
        ],
    }

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        failed = (result["error_code"], result.get("message"))
        results = result.get("entries") or [failed] * len(body.entries)
        response = AlterClientQuotasResponse(
            entries=[
                AlteredEntry(error_code=code, error_message=message, entity=entry.entity)
                for entry, (code, message) in zip(body.entries, results, strict=True)
            ]
        )
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call("alter_quotas", arguments, answer)


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, AlterClientQuotasRequest, handle)
