"""Ctrl-C.

It ends a command at once and without a word, as it ends other tools. Python's own handler would not do: it runs when a
call of the client library returns, and some of those take 15 s. Commands that have something to tell or to tidy up ask
for an exception while they do what can be interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The exit code of a command that Ctrl-C interrupted: that of shells, 128 and the number of the signal.
INTERRUPTED = 130


def end_at_once() -> None:
    """Let Ctrl-C end the process from now on, unless whoever started it has it ignore that (nohup, `&` in a script)."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The launcher blocks it, so that none comes while Python starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def raised() -> Iterator[None]:
    """Within this context the first Ctrl-C raises KeyboardInterrupt. The next one ends the process."""

    def raise_once(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
