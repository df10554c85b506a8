"""Functions of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any


def function(name: str, *argument_types: Any) -> Callable[..., int] | None:
    """One that returns an int; where it tells errno, `last_error` says what that was. None: this system has none."""
    found = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if found is not None:
        found.argtypes, found.restype = argument_types, ctypes.c_int
    return found


def last_error() -> OSError:
    """Why the call that this thread made last has failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
