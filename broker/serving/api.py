"""What one API declares about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    min_version: int
    max_version: int
    request: type[Message]
    #: (context, request, decoded body). `Any`, because each handler takes its own request type. A handler that may take
    #: long returns its work as steps (broker.serving.steps).
    handle: Callable[[Context, Request, Any], Steps | None]
    #: The lowest version in ApiVersions, if it differs from the lowest that is served (Produce: KAFKA-18659).
    advertised_min_version: int | None = None
    #: (request, decoded body): whether the answer names leaders or coordinators. Such a request is handled
    #: `dispatcher.LEADER_ANSWER_DELAY_S` after it came. None: the answer never names any.
    names_leaders: Callable[[Request, Any], bool] | None = None
    #: Only a request with records may be larger than `dispatcher.MAX_SMALL_REQUEST_BYTES`: they are not decoded.
    carries_records: bool = False
    #: Answers a request of a version that is not served. None: the connection is closed, as Kafka does.
    answer_unknown_version: Callable[[Request], None] | None = None
