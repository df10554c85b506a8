"""Requests that this node carries out, its own and those of other nodes: each goes to the part that can.

What another node sends may be anything: an operation of a newer build is answered UNSUPPORTED_VERSION, a body that
cannot be read INVALID_REQUEST, and the connection goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import structlog

from broker.network.peers import PeerIdentity
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol import peer
from protocol.controller.brokers import RegisterBroker, RenewReplicas
from protocol.controller.operations import decode_request, encode_result
from protocol.controller.request import Request, Result, ResultT
from protocol.errors import ErrorCode, KafkaError, ProtocolError

logger = structlog.get_logger()

#: How long a node waits for an answer.
TIMEOUT_S = 10.0


class Links(Protocol):
    """The ways to other nodes; `broker.membership.cluster.Cluster` is one."""

    def is_connected(self, node_id: int) -> bool:
        """Whether what is sent there now can arrive; if not it would be dropped."""

    def send(self, node_id: int, message: peer.PeerMessage) -> None: ...


class Execute(Protocol):
    """Carries out a request. `reply` is called once with the result, or why there is none, and the image end: the
    offset behind what the answer rests on."""

    def __call__(
        self, request: Request[ResultT], reply: Callable[[ResultT | KafkaError, int], None]
    ) -> None: ...


#: (request, reply): as `Execute`, for one kind of request.
_Part = Callable[[Any, Callable[[Any, int], None]], None]


class RequestServer:
    """Gives each request to the part that carries it out, and sends its answer back."""

    def __init__(
        self,
        now: Callable[[], float],
        links: Links,
        controller: Execute,
        background: Background,
        ticks: Ticks,
    ) -> None:
        """`now`: loop time. `controller` takes every request that nobody else does."""
        self._now = now
        self._links = links
        self._controller = controller
        self._others: dict[type[Request[Any]], _Part] = {}
        self._background = background
        #: Answers to nodes that are not connected now, with the time when nobody waits for them any more. Invariant: no
        #: queue is empty.
        self._undelivered: dict[int, deque[tuple[float, peer.ControllerResponse]]] = {}
        ticks.every(SLOW_TICK_S, self.tick)

    def add_part(self, kind: type[Request[Any]], part: _Part) -> None:
        """Have requests of this kind carried out by `part`, as by an `Execute`."""
        assert kind not in self._others
        self._others[kind] = part

    def execute(self, request: Request[ResultT], reply: Callable[[ResultT | KafkaError, int], None]) -> None:
        """As `Execute`. Answers NOT_CONTROLLER to what is the controller's if this node is not it."""
        self._others.get(type(request), self._controller)(request, reply)

    def request_received(self, sender: PeerIdentity, message: peer.ControllerRequest) -> None:
        """Another node asks this one."""
        self._background.begin(self._carry_out(sender, message))

    def _carry_out(self, sender: PeerIdentity, message: peer.ControllerRequest) -> Steps:
        reply = partial(self._send_response, sender.node_id, message.request_id)
        try:
            request = yield from decode_request(message.operation, message.body)
            _check_speaks_for_itself(sender, request)
        except KafkaError as unknown:
            reply(unknown, 0)
        except ProtocolError as error:
            logger.warning("a request of another node is refused", node_id=sender.node_id, reason=str(error))
            reply(KafkaError(ErrorCode.INVALID_REQUEST, str(error)), 0)
        else:
            self.execute(request, reply)

    def _send_response(
        self, node_id: int, request_id: int, outcome: Result | KafkaError, image_end: int
    ) -> None:
        self._background.begin(self._encode_and_send(node_id, request_id, outcome, image_end))

    def _encode_and_send(
        self, node_id: int, request_id: int, outcome: Result | KafkaError, image_end: int
    ) -> Steps:
        response = peer.ControllerResponse(request_id=request_id, image_end=image_end)
        if isinstance(outcome, KafkaError):
            response.error_code, response.error_message = outcome.code, outcome.message
        else:
            response.body = yield from encode_result(outcome)
        if self._links.is_connected(node_id):
            self._links.send(node_id, response)
        else:
            waiting = self._undelivered.setdefault(node_id, deque())
            waiting.append((self._now() + TIMEOUT_S, response))

    def node_connected(self, node_id: int) -> None:
        for _, response in self._undelivered.pop(node_id, ()):
            self._links.send(node_id, response)

    def tick(self, now: float) -> None:
        """Drop the answers for which nobody waits any more."""
        for node_id, responses in list(self._undelivered.items()):
            while responses and responses[0][0] <= now:
                responses.popleft()
            if not responses:
                del self._undelivered[node_id]


def _check_speaks_for_itself(sender: PeerIdentity, request: Request[Any]) -> None:
    """A node registers itself, and renews its own replicas. Raises ProtocolError."""
    if isinstance(request, RegisterBroker | RenewReplicas) and (
        (request.node_id, request.directory_id) != (sender.node_id, sender.directory_id)
        or (isinstance(request, RegisterBroker) and request.boot_id != sender.boot_id)
    ):
        raise ProtocolError(
            f"{type(request).__name__} for node {request.node_id} with directory {request.directory_id}"
        )
