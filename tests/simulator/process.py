"""One life of a node: what SIGKILL, SIGSTOP and SIGCONT are in the simulation.

Everything that a node schedules carries its process, by a context variable that tasks and callbacks inherit.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from tests.simulator.loop import SimulatedHandle, SimulatedLoop

_T = TypeVar("_T")

#: The process that is running; None: the harness itself ("the world").
current_node: contextvars.ContextVar[NodeProcess | None] = contextvars.ContextVar(
    "current_node", default=None
)


class NodeKilledError(BaseException):
    """Unwinds the callback in which a node dies, and whatever a dead node still tries to do.

    A BaseException, so that no `except Exception` of the product survives its own death.
    """


class NodeProcess:
    """A node from its start to its death. A restarted node is a new process with the next incarnation."""

    def __init__(self, loop: SimulatedLoop, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.label = f"{name}#{incarnation}"
        self.alive = True
        self.paused = False
        #: Callbacks that came due while paused, in order. Invariant: empty unless paused.
        self.waiting: deque[SimulatedHandle] = deque()
        #: Tasks that are not done, in order of creation. They are held strongly: a task that is collected
        #: runs its `finally` blocks at a moment that only the garbage collector knows.
        self.tasks: dict[asyncio.Task[Any], contextvars.Context] = {}
        #: What dies with the process (sockets, locks), called once, in the world's context.
        self.at_exit: list[Callable[[], None]] = []
        #: Handles dropped at the death, kept so that nothing they hold is finalized before the loop closes.
        self.remains: list[SimulatedHandle] = []
        self._loop = loop
        self._context = contextvars.Context()
        self._context.run(current_node.set, self)

    def __repr__(self) -> str:
        return f"<{self.label}{'' if self.alive else ' dead'}{' paused' if self.paused else ''}>"

    def new_context(self) -> contextvars.Context:
        return self._context.copy()

    def create_task(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine as this node."""
        return self._loop.create_task(coroutine, context=self.new_context())

    def call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call a plain function as this node, at once (the harness only: never from inside a callback)."""
        return self.new_context().run(function, *args)

    def die(self, *_: object) -> NoReturn:
        """os._exit() of this node, from one of its own callbacks. Fits the `fail` hook of a broker node."""
        if self.alive:
            self._loop.kill(self)
        raise NodeKilledError(self.label)


@contextmanager
def looking_on() -> Iterator[None]:
    """For the harness in the middle of a node's callback: disks show it what was written, and do not fail."""
    token = current_node.set(None)
    try:
        yield
    finally:
        current_node.reset(token)


def require_alive(node: NodeProcess | None) -> None:
    """Called by disks and networks: a dead node changes nothing any more."""
    if node is not None and not node.alive:
        raise NodeKilledError(node.label)
