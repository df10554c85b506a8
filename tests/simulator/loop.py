"""The event loop of a simulated world: virtual time, FIFO callbacks, nodes that can be killed and paused.

About fifteen methods are implemented; all others of `asyncio.AbstractEventLoop` raise NotImplementedError by
themselves, which is how an escape to real sockets, threads or processes is found.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from tests.simulator.process import NodeKilledError, NodeProcess, current_node
from tests.simulator.trace import Trace

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: Callbacks at one instant after which we call it a livelock. A busy cluster needs a few thousand.
MAX_CALLBACKS_PER_INSTANT = 1_000_000

#: How much longer than asked `run_for` may run while somebody waits busily (`take_time`). The wait goes on with the
#: next run.
LONGEST_WORK_S = 0.01

#: How often a dead coroutine may await in its `finally` blocks before we leave it to the interpreter.
_MAX_CLOSE_ATTEMPTS = 100


class SimulationError(Exception):
    """A run that cannot go on, or an exception that nobody handled. The message ends with the last events."""


class SimulationTimeoutError(SimulationError):
    """`run_until` reached its limit of virtual time, or nothing was left to happen."""


class SimulatedHandle(asyncio.TimerHandle):
    """A callback, its moment, the context it runs in, and the process it dies with."""

    __slots__ = ("arguments", "at_s", "callback", "context", "is_timer", "node")

    def __init__(
        self,
        at_s: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context,
        node: NodeProcess,
        *,
        is_timer: bool,
    ) -> None:
        # The base class is for the type only: its fields belong to asyncio's own loops.
        self.at_s = at_s
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.context = context
        self.node = node
        self.is_timer = is_timer

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self.callback!r} of {self.node!r} at {self.at_s}>"

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at_s

    def get_context(self) -> contextvars.Context:
        return self.context


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Virtual time. Nothing here is random: randomness enters at disks, networks and timers' own jitter.

    Two runs that schedule the same callbacks have the same `trace.digest()`.
    """

    def __init__(self, start_s: float = 1000.0) -> None:
        self.trace = Trace()
        #: Called after every callback; raise from it where an invariant is broken.
        self.after_callback: list[Callable[[], None]] = []
        #: Called with what a callback or a task of a process raised and nobody handled, as the exception handler of
        #: `broker.main` is. True: the process ends; False: the run does.
        self.ends_process: Callable[[NodeProcess, BaseException], bool] = lambda process, error: False
        #: The harness's own callbacks and tasks, and those of networks and disks.
        self.world = NodeProcess(self, "world", 0)
        self._now_s = start_s
        self._ready: deque[SimulatedHandle] = deque()
        #: (when, sequence, handle): timers of one instant run in the order in which they were set.
        self._timers: list[tuple[float, int, SimulatedHandle]] = []
        self._sequence = 0
        self._instant_callbacks = 0
        self._unhandled: list[tuple[str, BaseException | None]] = []
        self._incarnations: dict[str, int] = {}
        self._processes: list[NodeProcess] = [self.world]
        self._task_count = 0
        self._running = False
        self._closed = False

    # -- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        node = context.get(current_node) or self.world
        handle = SimulatedHandle(self._now_s, callback, args, context, node, is_timer=False)
        if node.alive:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        node = context.get(current_node) or self.world
        handle = SimulatedHandle(when, callback, args, context, node, is_timer=True)
        if node.alive:
            self._sequence += 1
            heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _T],  # type: ignore[override]
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[_T]:
        if context is None:
            context = contextvars.copy_context()
        node = context.get(current_node) or self.world
        if name is None:
            self._task_count += 1
            name = f"{node.label}-task-{self._task_count}"
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self, name=str(name), context=context)
        node.tasks[task] = context
        task.add_done_callback(_forget_task, context=context)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nobody handled ends the run, unless it belongs to a dead node."""
        error = context.get("exception")
        node = current_node.get()
        if error is not None and node is not None and node.alive and self._ends_process(node, error):
            return
        if not self._closed and not isinstance(error, NodeKilledError):
            self._unhandled.append((context.get("message", "unhandled"), error))

    def close(self) -> None:
        """The end of the world: every process is killed, and what the dead left behind is taken apart.

        Only now do the `finally` blocks of killed tasks run: a suspended coroutine cannot be freed without
        that. Disks and networks refuse the dead, so nothing comes of it.
        """
        if self._closed:
            return
        assert not self._running
        for node in self._processes:
            if node.alive:
                self.kill(node)
        self._closed = True
        for node in self._processes:
            for task, context in node.tasks.items():
                _lay_to_rest(task, context)
            node.tasks.clear()
            node.remains.clear()
        if self._unhandled:
            message, cause = self._unhandled[0]
            raise SimulationError(self._report(f"{message}: {cause!r}")) from cause

    # -- nodes -----------------------------------------------------------------------------------------------

    def start_process(self, name: str) -> NodeProcess:
        """A new life of the node `name`. The one before has to be dead."""
        assert not any(node.alive and node.name == name for node in self._processes), f"{name} is alive"
        incarnation = self._incarnations.get(name, 0) + 1
        self._incarnations[name] = incarnation
        node = NodeProcess(self, name, incarnation)
        self._processes.append(node)
        self.trace.note(self._now_s, node.label, "starts")
        return node

    def process(self, name: str) -> NodeProcess | None:
        """The living process of a node."""
        for node in reversed(self._processes):
            if node.alive and node.name == name:
                return node
        return None

    def kill(self, node: NodeProcess) -> None:
        """SIGKILL. Crash is not cancel: callbacks, timers and tasks of the process are dropped unrun.

        Called from one of the node's own callbacks, that callback goes on to its end (see `NodeProcess.die`);
        disks and networks refuse it from here on. The page cache of its disk survives (MemoryDisk.crash is
        the loss of power).
        """
        assert node.alive, f"{node.label} is dead already"
        self.trace.note(self._now_s, node.label, "killed")
        node.alive = False
        node.paused = False
        node.remains += node.waiting
        node.waiting.clear()
        # What stands in the queue is passed over when its turn comes, so that no turn gets longer by a death.
        node.remains += [handle for handle in self._ready if handle.node is node]
        node.remains += [entry[2] for entry in self._timers if entry[2].node is node]
        self._timers = [entry for entry in self._timers if entry[2].node is not node]
        heapq.heapify(self._timers)
        for action in node.at_exit:
            contextvars.Context().run(action)
        node.at_exit.clear()

    def pause(self, node: NodeProcess) -> None:
        """SIGSTOP: what comes due waits, and time goes on."""
        assert node.alive and node is not self.world
        self.trace.note(self._now_s, node.label, "paused")
        node.paused = True

    def resume(self, node: NodeProcess) -> None:
        """SIGCONT: what came due meanwhile runs now. Sockets and disks come first, for the process wakes in its poll;
        then the timers, in order."""
        assert node.alive and node.paused
        self.trace.note(self._now_s, node.label, "resumed")
        node.paused = False
        self._ready.extend(sorted(node.waiting, key=_is_timer))
        node.waiting.clear()

    # -- running ---------------------------------------------------------------------------------------------

    def run_until_complete(self, future: asyncio.Future[_T] | Coroutine[Any, Any, _T]) -> _T:  # type: ignore[override]
        """Run a coroutine of the harness to its end, however long that takes in virtual time."""
        task = self.create_task(future) if asyncio.iscoroutine(future) else future
        assert isinstance(task, asyncio.Future)
        self.run_until(task, limit_s=float("inf"))
        return task.result()

    def run_until(self, condition: Callable[[], bool] | asyncio.Future[Any], limit_s: float) -> None:
        """Run until a predicate holds (looked at once per turn of the loop) or a future is done.

        Raises SimulationTimeoutError after `limit_s` virtual seconds, or where nothing is left to happen.
        """
        holds = condition.done if isinstance(condition, asyncio.Future) else condition
        end_s = self._now_s + limit_s
        with _Running(self):
            while not holds():
                is_late = self._now_s > end_s + LONGEST_WORK_S
                if is_late or not (self._ready or self._advance(end_s)):
                    is_over = not (self._ready or self._timers)
                    reason = "nothing is left to happen" if is_over else f"{limit_s} s have passed"
                    self._give_up(f"{_name(condition)} does not hold: {reason}")
                self._run_turn()

    def run_for(self, seconds: float) -> None:
        """Run what happens within the next virtual seconds; then it is that much later: exactly, unless somebody was at
        work for longer (`take_time`)."""
        end_s = self._now_s + seconds
        with _Running(self):
            while self._now_s <= end_s + LONGEST_WORK_S and (self._ready or self._advance(end_s)):
                self._run_turn()
            self._now_s = max(self._now_s, end_s)

    def take_time(self, seconds: float) -> None:
        """The present callback takes so long. All others take no time."""
        self._now_s += seconds

    def _advance(self, end_s: float) -> bool:
        """Go to the next timer; False where there is none until `end_s`. Only with nothing ready."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers or timers[0][0] > end_s:
            return False
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._instant_callbacks = 0
        return True

    def _run_turn(self) -> None:
        """One iteration as asyncio's loop does it: due timers join the queue, then what stands in it runs.

        What those callbacks schedule belongs to the next turn.
        """
        timers = self._timers
        while timers and timers[0][0] <= self._now_s:
            self._ready.append(heapq.heappop(timers)[2])
        count = len(self._ready)
        self._instant_callbacks += count
        if self._instant_callbacks > MAX_CALLBACKS_PER_INSTANT:
            self._give_up("livelock: time does not advance")
        next_handle = self._ready.popleft
        for _ in range(count):
            handle = next_handle()
            callback = handle.callback
            node = handle.node
            if callback is None or not node.alive:
                continue
            if node.paused:
                node.waiting.append(handle)
                continue
            self._run_callback(handle, callback)

    def _run_callback(self, handle: SimulatedHandle, callback: Callable[..., object]) -> None:
        node = handle.node
        self.trace.add(self._now_s, node.label, callback)
        try:
            handle.context.run(callback, *handle.arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # What a node did in the callback in which it died, nobody saw.
            if node.alive and not self._ends_process(node, error):
                raise SimulationError(self._report(f"unhandled in {callback!r} of {node.label}")) from error
        if self._unhandled:
            message, cause = self._unhandled.pop(0)
            raise SimulationError(self._report(f"{message}: {cause!r}")) from cause
        for check in self.after_callback:
            try:
                check()
            except Exception as broken:
                broken.add_note(self._report(f"found by {_name(check)}"))
                raise

    def _ends_process(self, node: NodeProcess, error: BaseException) -> bool:
        if node is self.world or self._closed or not self.ends_process(node, error):
            return False
        self.trace.note(self._now_s, node.label, f"ends: {error}")
        if node.alive:
            self.kill(node)
        return True

    def _give_up(self, message: str) -> NoReturn:
        raise SimulationTimeoutError(self._report(message))

    def _report(self, message: str) -> str:
        return "\n".join([message, f"at {self._now_s:.6f} s, the last events:", *self.trace.recent()])


def new_loop(start_s: float = 1000.0) -> SimulatedLoop:
    """A loop. The typing stubs call what we leave unimplemented abstract; at run time it raises when called."""
    return SimulatedLoop(start_s)  # type: ignore[abstract]


class _Running:
    """Makes the loop the running one, as `asyncio.get_running_loop` sees it."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        assert not self._loop._closed and not self._loop._running
        asyncio._set_running_loop(self._loop)
        self._loop._running = True

    def __exit__(self, *_: object) -> None:
        self._loop._running = False
        asyncio._set_running_loop(None)


def _is_timer(handle: SimulatedHandle) -> bool:
    return handle.is_timer


def _name(condition: object) -> str:
    return str(getattr(condition, "__qualname__", condition))


def _forget_task(task: asyncio.Task[Any]) -> None:
    """Done callback of every task, in the task's own context."""
    node = current_node.get()
    loop = task.get_loop()
    assert isinstance(loop, SimulatedLoop)
    del (node or loop.world).tasks[task]


def _lay_to_rest(task: asyncio.Task[Any], context: contextvars.Context) -> None:
    """Close the coroutine of a dead task, quietly."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done():
        if not task.cancelled():
            task.exception()  # seen: a dead node's failure is no news
        return
    coroutine = task.get_coro()
    assert coroutine is not None
    for _ in range(_MAX_CLOSE_ATTEMPTS):
        try:
            context.run(coroutine.close)
        except (Exception, asyncio.CancelledError, NodeKilledError):
            continue  # its own `finally` blocks may fail or await: it is dead
        return
