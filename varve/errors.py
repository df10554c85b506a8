"""What goes wrong with a cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster did not do what was asked. The message says why; of a node that ended it has the end of the log."""
