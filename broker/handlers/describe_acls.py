"""DescribeAcls: always SECURITY_DISABLED (54), as in a Kafka cluster without an authorizer: there is no access control
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: For all three APIs of ACLs.
NO_ACCESS_CONTROL = "this cluster has no access control"


def handle(context: Context, request: Request, body: DescribeAclsRequest) -> None:
    response = DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_ACCESS_CONTROL, resources=[]
    )
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.DESCRIBE_ACLS, 1, 3, DescribeAclsRequest, handle)
