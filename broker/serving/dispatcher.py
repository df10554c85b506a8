"""From a request's bytes to its handler."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from broker.network.request import Request
from broker.serving.api import Api
from broker.serving.context import Context
from broker.serving.steps import Steps
from protocol.codec import Decoder, StepDecoder, decoder, step_decoder
from protocol.errors import ProtocolError
from protocol.schema import Message

#: A decoded request can take many times its size on the wire. Only Produce has a reason to be large, and its records
#: are not decoded.
MAX_SMALL_REQUEST_BYTES = 8 << 20
#: How many structs, strings and tagged fields a request may hold. Four plain numbers count as one. Decoded, so many
#: take some megabytes, and the garbage collector looks at them within a few milliseconds. A request that names every
#: partition of a large node has less.
MAX_REQUEST_ELEMENTS = 20_000
#: A larger request is decoded in steps. Up to this size it takes some milliseconds at the worst.
DECODED_AT_ONCE_BYTES = 32 << 10

#: How long an answer that names leaders or coordinators is delayed. A process that dies closes its connections within
#: about a millisecond, those of clients often before those of the other nodes. A client asks for the new leader at
#: once, and without a delay it would be told the dead one: librdkafka then tries to connect there, and asks again one
#: or two seconds later. After the delay the other nodes know that the process is dead.
LEADER_ANSWER_DELAY_S = 0.005


class _Ready(NamedTuple):
    """An API in one version."""

    api: Api
    decode: Decoder[Message]
    decode_in_steps: StepDecoder[Message]


class ApiDispatcher:
    """Decodes a request's body and calls its handler."""

    def __init__(self, context: Context, before_each: Callable[[], None]) -> None:
        """`before_each` is called before each request is handled, for checks that must come before any service."""
        self._context = context
        self._before_each = before_each
        self._by_key: dict[int, Api] = {api.key: api for api in context.apis}
        #: (api key << 16 | version) -> what it needs, filled at first use.
        self._ready: dict[int, _Ready] = {}

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        """Decode a request and handle it: now, in steps, or after LEADER_ANSWER_DELAY_S. Raises ProtocolError if the
        connection has to be closed, as in Kafka: an unknown API or version, or a malformed body."""
        ready = self._ready.get(request.api_key << 16 | request.api_version)
        if ready is None:
            ready = self._prepare(request)
            if ready is None:
                return
        self._before_each()
        api, decode, decode_in_steps = ready
        size_bytes = len(frame)
        if size_bytes <= DECODED_AT_ONCE_BYTES:
            # Bytes behind the body are ignored, as in Apache Kafka: librdkafka sends some with Metadata.
            body, _ = decode(frame, body_position, MAX_REQUEST_ELEMENTS)
            if api.names_leaders is not None and api.names_leaders(request, body):
                self._handle_later(api, request, body)
            else:
                self._serve(request, self._handle(api, request, body))
            return
        if size_bytes > MAX_SMALL_REQUEST_BYTES and not api.carries_records:
            raise ProtocolError(
                f"{api.key.name}: {size_bytes} bytes are too many for a request without records"
            )
        if not request.owned:
            frame, request.owned = memoryview(bytearray(frame)), True
        steps = decode_in_steps(frame, body_position, MAX_REQUEST_ELEMENTS)
        self._context.long_requests.serve(request, self._decode_and_handle(api, request, steps))

    def _decode_and_handle(
        self, api: Api, request: Request, decoding: Generator[None, None, tuple[Message, int]]
    ) -> Steps:
        body, _ = yield from decoding
        if api.names_leaders is not None and api.names_leaders(request, body):
            self._handle_later(api, request, body)
            return
        steps = self._handle(api, request, body)
        if steps is not None:
            yield from steps

    def _handle_later(self, api: Api, request: Request, body: Message) -> None:
        """No other request of this client is handled before it: thousands of them would be due at once."""
        request.connection.hold_requests()
        self._context.loop.call_later(LEADER_ANSWER_DELAY_S, self._handle_delayed, api, request, body)

    def _handle_delayed(self, api: Api, request: Request, body: Message) -> None:
        if request.is_abandoned:
            return
        budget = self._context.turn.budget
        if budget.is_spent():
            budget.wait(partial(self._handle_delayed, api, request, body))
            return
        try:
            self._serve(request, self._handle(api, request, body))
        except ProtocolError as error:
            request.connection.refuse(error)
        request.connection.release_requests()

    def _serve(self, request: Request, steps: Steps | None) -> None:
        if steps is not None:
            self._context.long_requests.serve(request, steps)

    def _handle(self, api: Api, request: Request, body: Message) -> Steps | None:
        """Handle a request, or return the steps that do it. The time that this takes is charged to the client's quota.
        Work that is done later for the request (at the end of a long poll, at a commit) is not measured."""
        if not self._context.quotas.limits_requests:
            return api.handle(self._context, request, body)
        worked_s = self._context.clock.worked_s
        began_s = worked_s()
        steps = api.handle(self._context, request, body)
        if steps is not None:
            return self._measured(request, steps)
        self._charge(request, worked_s() - began_s)
        return None

    def _measured(self, request: Request, steps: Steps) -> Steps:
        worked_s = self._context.clock.worked_s
        total_s, began_s = 0.0, worked_s()
        for _ in steps:
            total_s += worked_s() - began_s
            yield None
            began_s = worked_s()
        self._charge(request, total_s + worked_s() - began_s)

    def _charge(self, request: Request, worked_s: float) -> None:
        request.throttle(self._context.quotas.charge_request(request.client_id, worked_s))

    def _prepare(self, request: Request) -> _Ready | None:
        """The API of a request. None: the version is not served, and the request is already answered."""
        api = self._by_key.get(request.api_key)
        if api is None:
            raise ProtocolError(f"unknown api key {request.api_key}")
        if not api.min_version <= request.api_version <= api.max_version:
            if api.answer_unknown_version is not None:
                api.answer_unknown_version(request)
                return None
            raise ProtocolError(f"{api.key.name} v{request.api_version} is not served")
        version = request.api_version
        ready = _Ready(api, decoder(api.request, version), step_decoder(api.request, version))
        self._ready[request.api_key << 16 | version] = ready
        return ready
