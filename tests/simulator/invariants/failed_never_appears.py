"""What was refused for certain is never committed (users.md, aborted reads; Jepsen's Kafka workload).

A batch may be sent several times, and each time for itself is refused, acknowledged, or neither. It stands in the logs
at most as often as it was sent and not refused. Of a producer without retries that says: an acknowledged batch stands
at one offset only, and not under the id of a topic that came later.
"""

from __future__ import annotations

from storage.log_types import GroupKey


class FailedNeverAppears:
    def __init__(self, places: dict[bytes, list[tuple[GroupKey, int]]]) -> None:
        """`places`: where a content was committed."""
        self._places = places
        #: Content -> requests that carried it and were not refused.
        self._requests: dict[bytes, int] = {}

    def sent(self, digest: bytes) -> None:
        """A client is about to send a batch."""
        self._requests[digest] = self._requests.get(digest, 0) + 1

    def refused(self, digest: bytes) -> None:
        """One of its requests got an error that says: not appended."""
        self._requests[digest] -= 1
        self.check(digest)

    def check(self, digest: bytes) -> None:
        """Also when a content is committed somewhere for the first time. What no client sent is not looked at."""
        if (requests := self._requests.get(digest)) is not None:
            places = self._places.get(digest, [])
            assert len(places) <= requests, f"{requests} requests were not refused, committed at {places}"
