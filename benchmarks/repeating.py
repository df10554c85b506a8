"""Something that is done again and again beside a measurement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(action: Callable[[], None], first_s: float, interval_s: float) -> Iterator[None]:
    """A thread that does it at its times, one after the other; never two at once."""
    is_over = threading.Event()

    def work() -> None:
        due_s = time.monotonic() + first_s
        while not is_over.wait(max(0.0, due_s - time.monotonic())):
            action()
            due_s = max(due_s + interval_s, time.monotonic())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
