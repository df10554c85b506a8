"""What the clients of a node have sent, been sent, and waited for: numbers for `broker.metrics`."""

from __future__ import annotations

from collections import defaultdict

from storage.durations import Durations


class ClientTraffic:
    """Of all connections, those that are closed included. All numbers only rise."""

    __slots__ = ("accepted_count", "by_api", "received_bytes", "refused_count", "sent_bytes")

    def __init__(self) -> None:
        self.accepted_count = 0
        #: Of these, the connections that were closed at once because there are too many.
        self.refused_count = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        #: By API key: from the moment a request is begun until its answer is passed to the socket. The time of a long
        #: poll is part of it, and what a request waits in the connection before it is begun is not.
        self.by_api: defaultdict[int, Durations] = defaultdict(Durations)
