"""The native module, or None where it was not built (scripts/build_native.py)."""

from __future__ import annotations

from types import ModuleType

native: ModuleType | None
try:
    from storage.compaction import _native as native
except ImportError:
    native = None
