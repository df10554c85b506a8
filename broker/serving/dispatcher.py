"""From a request's bytes to its handler."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.connection import Request
from broker.serving.api import Api
from broker.serving.context import Context
from protocol.codec import Decoder, decoder
from protocol.errors import ProtocolError
from protocol.schema import Message

#: A decoded request can take many times its size on the wire (protocol.wire bounds the number of its elements). Only
#: Produce has a reason to be large, and its records are not decoded.
MAX_SMALL_REQUEST_BYTES = 8 << 20

#: How long an answer that names leaders or coordinators is delayed. A process that dies closes its connections within
#: about a millisecond, those of clients often before those of the other nodes. A client asks for the new leader at
#: once, and without a delay it would be told the dead one: librdkafka then tries to connect there, and asks again one
#: or two seconds later. After the delay the other nodes know that the process is dead.
LEADER_ANSWER_DELAY_S = 0.005


class ApiDispatcher:
    """Decodes a request's body and calls its handler."""

    def __init__(self, context: Context, before_each: Callable[[], None]) -> None:
        """`before_each` is called before each request is handled, for checks that must come before any service."""
        self._context = context
        self._before_each = before_each
        self._by_key: dict[int, Api] = {api.key: api for api in context.apis}
        #: (api key << 16 | version) -> (decoder, api), filled at first use.
        self._ready: dict[int, tuple[Decoder[Message], Api]] = {}

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        """Decode a request and handle it, now or after LEADER_ANSWER_DELAY_S. Raises ProtocolError if the connection
        has to be closed, as in Kafka: an unknown API or version."""
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
        # Bytes behind the body are ignored, as in Apache Kafka: librdkafka sends some with Metadata.
        body, _ = decode(frame, body_position)
        if api.names_leaders is not None and api.names_leaders(request, body):
            self._context.loop.call_later(LEADER_ANSWER_DELAY_S, self._handle_delayed, api, request, body)
        elif self._context.quotas.limits_requests:
            self._handle_measured(api, request, body)
        else:
            api.handle(self._context, request, body)

    def _handle_delayed(self, api: Api, request: Request, body: Message) -> None:
        if not request.is_abandoned:
            self._handle_measured(api, request, body)

    def _handle_measured(self, api: Api, request: Request, body: Message) -> None:
        """Handle a request and charge the time to the client's quota. Work that is done later for the request (at the
        end of a long poll, at a commit) is not measured."""
        clock, began_s = self._context.clock, self._context.clock.worked_s()
        api.handle(self._context, request, body)
        request.throttle(self._context.quotas.charge_request(request.client_id, clock.worked_s() - began_s))

    def _prepare(self, request: Request) -> tuple[Decoder[Message], Api] | None:
        """The decoder and API of a request. None: the version is not served, and the request is already answered."""
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
