"""OSErrors in a protocol's callback.

Such an error does not come from the connection: a connection's errors reach a protocol as `connection_lost`. It does
not come from the disk either, which never raises OSError (storage/disk.py). So it is a defect, or the system fails.
"""

from __future__ import annotations

import asyncio


def report(error: OSError) -> None:
    """Call the loop's exception handler, which ends the node. asyncio and uvloop would take an OSError that
    `buffer_updated` raises for an error of that connection: they close it, and no handler is called."""
    context = {"message": "an OSError in a protocol's callback", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
