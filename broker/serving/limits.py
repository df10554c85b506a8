"""How many things a request of an API may name, where the general limit (dispatcher.MAX_REQUEST_ELEMENTS) is too much.

Mostly there is no need for such a limit, because requests are served in steps. It is needed where one decision is made
about all of the things, or where everything that the request names is kept. The table is in docs/settings.md, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError


class Limit(NamedTuple):
    most: int
    what: str
    """What is counted, in the plural."""
    error: ErrorCode


LIMITS: Mapping[ApiKey, Limit] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Limit(100, "components", ErrorCode.INVALID_REQUEST),
    ApiKey.JOIN_GROUP: Limit(100, "protocols", ErrorCode.INVALID_REQUEST),
}


def check_count(key: ApiKey, count: int) -> None:
    """Raises KafkaError if a request of this API names too many things."""
    limit = LIMITS[key]
    if count > limit.most:
        raise KafkaError(limit.error, f"names {count:,} {limit.what}; at most {limit.most:,} in one request")
