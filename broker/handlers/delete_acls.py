"""DeleteAcls: each filter is refused with SECURITY_DISABLED (54), as in CreateAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.describe_acls import NO_ACCESS_CONTROL
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteAclsRequest) -> None:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACCESS_CONTROL)
    response = DeleteAclsResponse(filter_results=[refused] * len(body.filters))
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.DELETE_ACLS, 1, 3, DeleteAclsRequest, handle)
