"""Asking the controller, wherever it is: here, or over the peer link of the node that leads `__cluster_metadata`.

Any broker takes administrative requests and passes them on, so a client need not know who the controller is. The few
requests that only another node can carry out (transfers of what it leads) go the same way to that node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from broker.controller.server import TIMEOUT_S, Execute, Links
from broker.metadata.ids import NodeIdentity
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol import peer
from protocol.controller.operations import decode_result, encode_request
from protocol.controller.request import Request, Result, ResultT
from protocol.controller.topics import FindDeletedTopics, FindDeletedTopicsResult
from protocol.errors import ErrorCode, KafkaError, ProtocolError, known_error

logger = structlog.get_logger()

_NOBODY = -1


class _Pending:
    """A request that is not answered yet."""

    __slots__ = (
        "addressee",
        "asked",
        "attempts",
        "deadline",
        "done",
        "image_end",
        "is_answered",
        "is_repeated",
        "needs_image",
        "outcome",
        "request",
    )

    def __init__(
        self,
        request: Request[Any],
        done: Callable[[Any], None],
        deadline: float,
        addressee: int | None,
        *,
        is_repeated: bool,
        needs_image: bool = False,
    ) -> None:
        self.request = request
        self.done = done
        self.deadline = deadline
        #: Who has to answer; None: the controller.
        self.addressee = addressee
        #: It is sent again where the answer may be lost.
        self.is_repeated = is_repeated
        #: Its answer means nothing without an image that shows what it rests on.
        self.needs_image = needs_image
        #: The node that was asked; _NOBODY: none, or one whose answer may be lost.
        self.asked = _NOBODY
        #: How often another node was asked.
        self.attempts = 0
        #: An answer came. It counts, and the request is not sent again.
        self.is_answered = False
        #: What came back, once it is decoded, until this node's image has come as far as `image_end`.
        self.outcome: Result | KafkaError | None = None
        self.image_end = 0


class ControllerClient:
    """The pending requests of this node."""

    def __init__(
        self,
        me: NodeIdentity,
        now: Callable[[], float],
        links: Links,
        controller_id: Callable[[], int],
        image_end: Callable[[], int],
        execute: Execute,
        background: Background,
        ticks: Ticks,
    ) -> None:
        """`now`: loop time. `controller_id`: the established leader of the metadata group, -1 if none is known.
        `image_end`: the offset behind what this node has replayed of the metadata. `execute`: carries out what is this
        node's own to do."""
        self._me = me
        self._now = now
        self._links = links
        self._controller_id = controller_id
        self._image_end = image_end
        self._execute = execute
        self._background = background
        # Different at each start of the node: a late answer to an earlier start must not pass for one to this start.
        self._next_id = me.boot_id.int >> 66
        self._pending: dict[int, _Pending] = {}
        ticks.every(SLOW_TICK_S, self.tick)

    def call(
        self,
        request: Request[ResultT],
        done: Callable[[ResultT | KafkaError], None],
        *,
        node_id: int | None = None,
    ) -> None:
        """Have a request carried out by the controller, or by `node_id`. `done` gets the result or why there is none,
        always, exactly once; REQUEST_TIMED_OUT after TIMEOUT_S, when it may still take effect. This node's image shows
        by then what was decided: who has changed something finds it where it asked for the change. An image that has
        not come as far after TIMEOUT_S is not waited for: a topic that is created is no failure, and a node with much
        to replay needs its producer ids. `catch_up` is for who relies on the image."""
        self._add(_Pending(request, done, self._now() + TIMEOUT_S, node_id, is_repeated=True))

    def catch_up(self, done: Callable[[bool], None]) -> None:
        """Have this node's image show everything that is committed now. `done` gets whether it does, once; False after
        TIMEOUT_S."""

        def answered(result: FindDeletedTopicsResult | KafkaError) -> None:
            done(not isinstance(result, KafkaError))

        # Any question would do.
        question, deadline = FindDeletedTopics(topic_ids=[]), self._now() + TIMEOUT_S
        self._add(_Pending(question, answered, deadline, None, is_repeated=True, needs_image=True))

    def call_once(
        self, request: Request[ResultT], done: Callable[[ResultT | KafkaError], None], node_id: int
    ) -> None:
        """Have a request carried out by `node_id`, if it is connected now, and stays so until it answers. Otherwise
        `done` gets NETWORK_EXCEPTION at once: the caller knows better whom to ask next. The request may have taken
        effect."""
        self._add(_Pending(request, done, self._now() + TIMEOUT_S, node_id, is_repeated=False))

    def _add(self, pending: _Pending) -> None:
        request_id = self._next_id
        self._next_id += 1
        self._pending[request_id] = pending
        self._send_request(request_id, pending)
        if pending.asked == _NOBODY and not pending.is_repeated:
            self._give_up(request_id, pending)

    def _give_up(self, request_id: int, pending: _Pending) -> None:
        del self._pending[request_id]
        pending.done(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {pending.addressee} is not connected"))

    def _send_request(self, request_id: int, pending: _Pending) -> None:
        """Ask now if whoever has to answer is known and can be reached; else a later tick does."""
        node_id = self._controller_id() if pending.addressee is None else pending.addressee
        if node_id == self._me.node_id:
            pending.asked = node_id
            self._execute(
                pending.request,
                lambda outcome, image_end: self._record_answer(request_id, outcome, image_end),
            )
        elif node_id >= 0 and self._links.is_connected(node_id):
            pending.asked = node_id
            pending.attempts += 1
            self._background.begin(self._encode_and_send(request_id, pending, node_id))

    def _encode_and_send(self, request_id: int, pending: _Pending, node_id: int) -> Steps:
        attempt = pending.attempts
        operation, body = yield from encode_request(pending.request)
        # In the meantime its time may be over. Or its link was lost: then a tick asks again.
        is_wanted = pending.asked == node_id and pending.attempts == attempt
        if is_wanted and request_id in self._pending:
            message = peer.ControllerRequest(request_id=request_id, operation=operation, body=body)
            self._links.send(node_id, message)

    def response_received(self, message: peer.ControllerResponse) -> None:
        pending = self._pending.get(message.request_id)
        if pending is None or pending.is_answered:
            return
        code = known_error(message.error_code)
        if code != ErrorCode.NONE:
            refused = KafkaError(code, message.error_message)
            self._record_answer(message.request_id, refused, message.image_end)
        else:
            pending.is_answered = True
            self._background.begin(self._decode_answer(pending, message))

    def _decode_answer(self, pending: _Pending, message: peer.ControllerResponse) -> Steps:
        outcome: Result | KafkaError
        try:
            outcome = yield from decode_result(pending.request, message.body)
        except ProtocolError as error:
            logger.warning("an answer of another node cannot be read", reason=str(error))
            outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer of another node cannot be read")
        if message.request_id in self._pending:
            self._settle(message.request_id, pending, outcome, message.image_end)

    def _record_answer(self, request_id: int, outcome: Result | KafkaError, image_end: int) -> None:
        pending = self._pending.get(request_id)
        if pending is None or pending.is_answered:
            return
        is_refused = isinstance(outcome, KafkaError) and outcome.code == ErrorCode.NOT_CONTROLLER
        if is_refused and pending.is_repeated and self._now() < pending.deadline:
            pending.asked = _NOBODY  # it has just ceased to be the controller: the next tick asks again
            return
        pending.is_answered = True
        self._settle(request_id, pending, outcome, image_end)

    def _settle(
        self, request_id: int, pending: _Pending, outcome: Result | KafkaError, image_end: int
    ) -> None:
        pending.outcome, pending.image_end = outcome, image_end
        self._pass_on(request_id, pending)

    def _pass_on(self, request_id: int, pending: _Pending) -> None:
        """Give the answer to who asked, if this node has replayed what it rests on."""
        if self._image_end() >= pending.image_end:
            del self._pending[request_id]
            pending.done(pending.outcome)

    def image_read(self) -> None:
        """This node's image has gone on."""
        for request_id, pending in list(self._pending.items()):
            if pending.outcome is not None:
                self._pass_on(request_id, pending)

    def answers_lost(self, node_id: int) -> None:
        """What was asked there may have taken effect or not, and no answer will come: ask again, the controller of that
        time, who sees what is committed."""
        for request_id, pending in list(self._pending.items()):
            if pending.asked == node_id and not pending.is_answered:
                pending.asked = _NOBODY
                if not pending.is_repeated:
                    self._give_up(request_id, pending)

    def tick(self, now: float) -> None:
        for request_id, pending in list(self._pending.items()):
            if now >= pending.deadline:
                del self._pending[request_id]
                is_late = pending.outcome is None or pending.needs_image
                pending.done(_late(pending) if is_late else pending.outcome)
            elif pending.asked == _NOBODY:
                self._send_request(request_id, pending)


def _late(pending: _Pending) -> KafkaError:
    addressee = "the controller" if pending.addressee is None else f"node {pending.addressee}"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{addressee} did not answer")
