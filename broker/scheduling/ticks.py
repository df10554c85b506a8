"""Work that is done at intervals. Each part of a node registers its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: The interval of checks that are not urgent.
SLOW_TICK_S = 0.05

Action = Callable[[float], None]


class Ticks:
    """The ticks of a node. Actions with the same interval share a timer. They are called in the order of their
    registration, with the loop's time in seconds. Ticks that a busy loop has missed are not made up for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actions: dict[float, list[Action]] = {}
        #: Interval in seconds -> timer of the next tick.
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._is_running = False

    def every(self, seconds: float, action: Action) -> None:
        """Have `action` called every `seconds`, from `start` on."""
        actions = self._actions.setdefault(seconds, [])
        actions.append(action)
        if self._is_running and len(actions) == 1:
            self._arm(seconds)

    def start(self) -> None:
        assert not self._is_running
        self._is_running = True
        for seconds in self._actions:
            self._arm(seconds)

    def stop(self) -> None:
        """No action is called after this. Registering an action is still allowed and has no effect."""
        self._is_running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, seconds: float) -> None:
        self._timers[seconds] = self._loop.call_later(seconds, self._tick, seconds)

    def _tick(self, seconds: float) -> None:
        self._arm(seconds)
        now = self._loop.time()
        for action in self._actions[seconds]:
            action(now)
