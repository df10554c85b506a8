"""How the files and sockets that the process may open (ulimit -n) are shared out.

A node that cannot open a file stops. So there are never more connections of clients than their half allows, and never
more replicas than the rest does.
"""

from __future__ import annotations

#: So many of the descriptors are for connections of clients at most: one in two.
_CONNECTIONS_PART = 2
#: For everything else: the journal, the metadata log, listeners, links to other nodes, monitoring, the event loop. A
#: node alone has 28 of them.
_OWN_FILES = 48
#: Each replica keeps one file open, its active segment. While it is elected it has a second one, and so many replicas
#: are elected between two flushes at most.
_ELECTED_TOGETHER = 1000
#: Below this a node has no room for replicas worth the name, and does not start.
MIN_LIMIT = 128


def connections_of(limit: int) -> int:
    """How many connections of clients a process with this limit may have."""
    return limit // _CONNECTIONS_PART


def replicas_of(limit: int) -> int:
    """How many replicas a node with this limit may have."""
    files = limit - connections_of(limit) - _OWN_FILES
    return max(0, files // 2, files - _ELECTED_TOGETHER)


def limit_for(replicas: int) -> int:
    """The limit that a node with so many replicas needs."""
    files = replicas + min(replicas, _ELECTED_TOGETHER)
    return _CONNECTIONS_PART * (files + _OWN_FILES)
