"""DeleteAcls: each filter is refused with SECURITY_DISABLED (54), as in CreateAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.describe_acls import NO_ACCESS_CONTROL
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteAclsRequest) -> Steps:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACCESS_CONTROL)
    return steps.reply(request, DeleteAclsResponse(filter_results=[refused] * len(body.filters)))


API = Api(ApiKey.DELETE_ACLS, 1, 3, DeleteAclsRequest, handle)
