"""From a request's bytes to its handler."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.connection import Request
from broker.serving.api import Api
from broker.serving.context import Context
from protocol.codec import Decoder, decoder
from protocol.errors import ProtocolError
from protocol.schema import Message

#: Decoded, a request can take many times its size on the wire; how many elements it has is bounded in protocol.wire.
#: Only Produce has a reason to be large, and its records are not decoded.
MAX_SMALL_REQUEST_BYTES = 8 << 20

#: A process that dies closes its connections one after the other, in about a millisecond, those of clients often before
#: those of the other nodes. A client asks at once who leads now and would be told of the dead one: librdkafka believes
#: it, finds nobody there, and asks again one or two seconds later. After this long the others know.
NEWS_S = 0.005


class ApiDispatcher:
    """Decodes a request's body and calls its handler."""

    def __init__(self, context: Context, before_each: Callable[[], None]) -> None:
        """`before_each` is called before any request is handled: what must be known before anything is served."""
        self._context = context
        self._before_each = before_each
        self._by_key: dict[int, Api] = {api.key: api for api in context.apis}
        #: (api key << 16 | version) -> (decoder, api), filled at first use.
        self._ready: dict[int, tuple[Decoder[Message], Api]] = {}

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        """Raises ProtocolError for what Kafka answers by closing the connection: unknown API or version."""
        ready = self._ready.get(request.api_key << 16 | request.api_version)
        if ready is None:
            ready = self._prepare(request)
            if ready is None:
                return
        self._before_each()
        decode, api = ready
        if len(frame) > MAX_SMALL_REQUEST_BYTES and not api.carries_records:
            raise ProtocolError(
                f"{api.key.name}: {len(frame)} bytes are too many for a request without records"
            )
        # Bytes behind the body are passed over, as Apache Kafka does: librdkafka sends some with Metadata.
        body, _ = decode(frame, body_position)
        if api.waits_for_news is not None and api.waits_for_news(request, body):
            self._context.loop.call_later(NEWS_S, self._handle_late, api, request, body)
        elif self._context.quotas.limits_requests:
            self._handle_measured(api, request, body)
        else:
            api.handle(self._context, request, body)

    def _handle_late(self, api: Api, request: Request, body: Message) -> None:
        if not request.is_abandoned:
            self._handle_measured(api, request, body)

    def _handle_measured(self, api: Api, request: Request, body: Message) -> None:
        """What is done for a request later on (a long poll that ends, a commit) is not measured."""
        clock, began_s = self._context.clock, self._context.clock.worked_s()
        api.handle(self._context, request, body)
        request.throttle(self._context.quotas.requested(request.client_id, clock.worked_s() - began_s))

    def _prepare(self, request: Request) -> tuple[Decoder[Message], Api] | None:
        """None: the request is answered already."""
        api = self._by_key.get(request.api_key)
        if api is None:
            raise ProtocolError(f"unknown api key {request.api_key}")
        if not api.min_version <= request.api_version <= api.max_version:
            if api.answer_unknown_version is not None:
                api.answer_unknown_version(request)
                return None
            raise ProtocolError(f"{api.key.name} v{request.api_version} is not served")
        ready = (decoder(api.request, request.api_version), api)
        self._ready[request.api_key << 16 | request.api_version] = ready
        return ready
