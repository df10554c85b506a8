"""CreateAcls: each is refused with SECURITY_DISABLED (54), because nothing here would apply them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.describe_acls import NO_ACCESS_CONTROL
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreateAclsRequest) -> Steps:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACCESS_CONTROL)
    return steps.reply(request, CreateAclsResponse(results=[refused] * len(body.creations)))


API = Api(ApiKey.CREATE_ACLS, 1, 3, CreateAclsRequest, handle)
