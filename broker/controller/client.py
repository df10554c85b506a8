"""Asking the controller, wherever it is: here, or over the peer link of the node that leads `__cluster_metadata`.

Any broker takes administrative requests and forwards them, so a client need not know who the controller is. The few
questions that only another node can answer (whom it leads) go the same way to that node. A question and its answer are
JSON: few, small, and readable in a trace.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol import peer
from protocol.errors import ErrorCode

Result = dict[str, Any]
Done = Callable[[Result], None]

#: A question that is not answered by then is answered REQUEST_TIMED_OUT; it may still take effect.
TIMEOUT_S = 10.0


class ControllerHost(Protocol):
    def now(self) -> float: ...
    def controller_node(self) -> int:
        """Node id of the established leader of the metadata group, -1 if none is known."""

    def own_node(self) -> int: ...
    def image_end(self) -> int:
        """The offset behind what this node has replayed of the metadata."""

    def execute(self, operation: str, arguments: dict[str, Any], done: Done) -> None:
        """Decide here. Answers NOT_CONTROLLER to what is the controller's if this node is not it."""

    def is_connected(self, node_id: int) -> bool:
        """Whether what is sent there now can arrive; if not it would be dropped."""

    def send(self, node_id: int, message: peer.PeerMessage) -> None: ...


class _Question:
    __slots__ = ("addressee", "arguments", "deadline", "done", "node_id", "operation", "result")

    def __init__(
        self, operation: str, arguments: dict[str, Any], done: Done, deadline: float, addressee: int | None
    ) -> None:
        self.operation = operation
        self.arguments = arguments
        self.done = done
        self.deadline = deadline
        #: Who has to answer; None: the controller.
        self.addressee = addressee
        #: Whom we asked; -1: nobody yet.
        self.node_id = -1
        #: The answer, until this node has seen what it is about.
        self.result: Result | None = None


class ControllerClient:
    """The open questions of this node."""

    def __init__(self, host: ControllerHost, first_id: int, ticks: Ticks) -> None:
        """`first_id`: different at each start of the node, or a late answer to a question that an earlier start asked
        could pass for the answer to one of ours."""
        self._host = host
        self._next_id = first_id
        self._open: dict[int, _Question] = {}
        #: Answers to nodes that are not connected now; they ask nobody else until they time out.
        self._undelivered: dict[int, deque[tuple[float, peer.ForwardReply]]] = {}
        ticks.every(SLOW_TICK_S, self.tick)

    def call(
        self, operation: str, arguments: dict[str, Any], done: Done, *, node_id: int | None = None
    ) -> None:
        """`done` gets {"error_code": ..., "message": ..., ...}, always, exactly once. This node's image shows by then
        what was decided: who has changed something finds it where it asked for the change. `node_id`: ask that node,
        not the controller."""
        question = _Question(operation, arguments, done, self._host.now() + TIMEOUT_S, node_id)
        request_id = self._next_id
        self._next_id += 1
        self._open[request_id] = question
        self._ask(request_id, question)

    def _ask(self, request_id: int, question: _Question) -> None:
        node_id = self._host.controller_node() if question.addressee is None else question.addressee
        if node_id == self._host.own_node():
            question.node_id = node_id
            self._host.execute(
                question.operation, question.arguments, lambda result: self._answered(request_id, result)
            )
        elif node_id >= 0 and self._host.is_connected(node_id):
            question.node_id = node_id
            body = json.dumps({"operation": question.operation, "arguments": question.arguments}).encode()
            self._host.send(
                node_id,
                peer.Forward(request_id=request_id, api_key=-1, api_version=0, listener="", body=body),
            )

    def forwarded(self, sender: int, message: peer.Forward) -> None:
        """Another node asks us."""
        assert message.body is not None
        question = json.loads(_bytes_of(message.body))

        def done(result: Result) -> None:
            reply = peer.ForwardReply(
                request_id=message.request_id,
                error_code=result["error_code"],
                body=json.dumps(result).encode(),
            )
            if self._host.is_connected(sender):
                self._host.send(sender, reply)
            else:
                waiting = self._undelivered.setdefault(sender, deque())
                waiting.append((self._host.now() + TIMEOUT_S, reply))

        self._host.execute(question["operation"], question["arguments"], done)

    def reply(self, message: peer.ForwardReply) -> None:
        assert message.body is not None
        self._answered(message.request_id, json.loads(_bytes_of(message.body)))

    def _answered(self, request_id: int, result: Result) -> None:
        question = self._open.get(request_id)
        if question is None or question.result is not None:
            return
        if result["error_code"] == ErrorCode.NOT_CONTROLLER and self._host.now() < question.deadline:
            question.node_id = -1  # it has just lost the part; ask again at the next tick
            return
        question.result = result
        self._finish(request_id, question)

    def _finish(self, request_id: int, question: _Question) -> None:
        assert question.result is not None
        if self._host.image_end() >= question.result.get("image_end", 0):
            del self._open[request_id]
            question.done(question.result)

    def image_read(self) -> None:
        """This node's image has gone on."""
        for request_id, question in list(self._open.items()):
            if question.result is not None:
                self._finish(request_id, question)

    def answers_lost(self, node_id: int) -> None:
        """What was asked there may have taken effect or not, and nobody will say: ask again, the controller that is one
        by now, who sees what is committed."""
        for question in self._open.values():
            if question.node_id == node_id and question.result is None:
                question.node_id = -1

    def node_connected(self, node_id: int) -> None:
        for _, reply in self._undelivered.pop(node_id, ()):
            self._host.send(node_id, reply)

    def tick(self, now: float) -> None:
        for node_id, replies in list(self._undelivered.items()):
            while replies and replies[0][0] <= now:  # nobody waits for it any more
                replies.popleft()
            if not replies:
                del self._undelivered[node_id]
        for request_id, question in list(self._open.items()):
            if now >= question.deadline:
                del self._open[request_id]
                asked = "the controller" if question.addressee is None else f"node {question.addressee}"
                late = error(ErrorCode.REQUEST_TIMED_OUT, f"{asked} did not answer")
                question.done(question.result or late)
            elif question.node_id < 0:
                self._ask(request_id, question)


def _bytes_of(body: object) -> bytes:
    assert isinstance(body, (bytes, bytearray, memoryview))
    return bytes(body)


def error(code: ErrorCode, message: str) -> Result:
    return {"error_code": int(code), "message": message}
