"""Functions of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any


def function(name: str, *argument_types: Any) -> Callable[..., int] | None:
    """A function that returns an int and may set errno, which `last_error` reads. None: this system has no such
    function."""
    found = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if found is not None:
        found.argtypes, found.restype = argument_types, ctypes.c_int
    return found


def last_error() -> OSError:
    """The error of the last call of this thread."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
