"""An OSError in the middle of a protocol's callback. It is none of the connection's: those reach a protocol as
`connection_lost`. The disk raises none either (storage/disk.py), so it is a defect, or a system that fails."""

from __future__ import annotations

import asyncio


def report(error: OSError) -> None:
    """Tell the loop's exception handler, which ends the node. asyncio and uvloop would take an OSError that
    `buffer_updated` raises for an error of that connection: they close it and tell nobody."""
    context = {"message": "an OSError in a protocol's callback", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
