"""How much memory the requests of clients may take on a node (queued.max.request.bytes), and which of them wait or are
given up when it is used up.

One half is for requests that *arrive*: unfinished frames, and complete ones that are not served yet. The other half is
for requests that are *served*, from their beginning to their answer.

- A complete request waits while there is no room to serve it. One connection cannot take all of it.
- A frame gets room when it begins, for all of it if it is of a usual size. If there is none, connections are closed
  whose frames would take long to come, by how quickly they have come so far. If there are none of those, the frame
  waits: the others are complete in some milliseconds.
- A frame has to come at a minimum rate, whether there is room or not.

So a client that sends nothing more, or little by little, costs the others nothing. A connection that waits is not read.

Values: no socket and no waiting. Connections say what changes, and are told to go on or to abort.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from operator import itemgetter
from typing import Protocol

import structlog

from protocol.framing import FIRST_BYTES, USUAL_BYTES, SharedBuffer

log = structlog.get_logger()

#: The interval of `tick`. The rate of a frame is measured over one or two of them: some round trips of a far client.
TICK_S = 0.25
#: A connection is closed that sends nothing of an unfinished frame for this long ...
STALLED_AFTER_S = 10.0
#: ... or takes longer than that and the frame's size at this rate. (A client gives 1 MiB 30 s or more by itself.)
MIN_BYTES_PER_S = 32 << 10
#: Where others need the room, a connection is closed whose frame would take so long or longer to be complete ...
PATIENCE_S = 2.0
#: ... and, if the connection has sent such frames before, only if it could be read between two calls of `retry`. Where
#: many producers send at once, the loop is busy and comes to some of them late.
_SEEN_AFTER_RETRIES = 2
#: The requests of a connection are served at once while all of them together take no more: a heartbeat must not wait
#: behind the records of others, nor small records behind large requests.
ALWAYS_SERVED_BYTES = 4096
#: A rate says nothing before: the first part of a frame may be some bytes.
JUDGED_AFTER_S = 0.01
#: While frames wait for room, one read brings at most so much of a new one.
SHORT_READ_BYTES = 16 << 10
#: Of the half of those that are served: below this, any request has room, however large, and those that wait go on.
_LOW_PART = 4
#: And what the requests of one connection may take before its next one waits for an answer.
_OWN_PART = 4
#: How many closed connections a line of the log names.
_NAMED_PEERS = 3

TOO_MUCH = "requests that arrive take half of queued.max.request.bytes, and these come slowly"
TOO_SLOW = "an unfinished request comes too slowly"


class Receiver(Protocol):
    """A client's connection, as far as it receives requests."""

    peer: str
    #: Memory of its unfinished frame and of complete frames that wait.
    arriving_bytes: int
    #: All bytes that it has ever received.
    received_bytes: int
    #: Loop time at which its unfinished frame began, in seconds; that of the last one if it has none.
    frame_began_s: float

    @property
    def announced_bytes(self) -> int:
        """Size of its unfinished frame. 0: it has none."""

    @property
    def missing_bytes(self) -> int:
        """What has not come of it."""

    @property
    def is_usual(self) -> bool:
        """It has sent a frame that was about as large before."""

    @property
    def waits_for_client(self) -> bool:
        """It is not read because the client does not read its answers, or is above a quota."""

    @property
    def waits_for_node(self) -> bool:
        """It is not read because this node is busy with other requests."""

    def go_on(self) -> None:
        """It waits no more. Called while another connection changes: it must not read or serve at once."""

    def abort(self) -> None: ...


class _Arrival:
    """What arrives on one connection. Two marks, at the last two ticks, say what had come of its unfinished frame by
    then; until there were two ticks, the older mark is the beginning of the frame."""

    __slots__ = (
        "began_s",
        "counted_bytes",
        "is_admitted",
        "marked_bytes",
        "older_bytes",
        "older_s",
        "read_since_retry",
        "read_since_s",
        "receiver",
        "still_s",
        "taken_s",
    )

    def __init__(self, receiver: Receiver, now: float, retries: int) -> None:
        self.receiver = receiver
        #: Its part of `RequestMemory.arriving_bytes`.
        self.counted_bytes = 0
        #: The frame has room for what is to come of it, up to a usual size.
        self.is_admitted = False
        self.began_s = receiver.frame_began_s
        #: When it began, or had room after it had waited, and how often `retry` had been called by then.
        self.read_since_s = now
        self.read_since_retry = retries
        self.marked_bytes = receiver.received_bytes + receiver.missing_bytes - receiver.announced_bytes
        self.older_bytes = self.marked_bytes
        #: Time between the older mark and the last tick.
        self.older_s = 0.0
        #: For how long the client could have sent, and for how long it has sent nothing at the end.
        self.taken_s = self.still_s = 0.0

    def mark(self, now: float, elapsed_s: float, *, is_read: bool) -> None:
        """The tick, so long after the one before. `is_read`: the client could send."""
        received_bytes = self.receiver.received_bytes
        elapsed_s = min(elapsed_s, now - self.read_since_s)
        if is_read:
            self.taken_s += elapsed_s
            self.still_s = 0.0 if received_bytes != self.marked_bytes else self.still_s + elapsed_s
        self.older_bytes, self.marked_bytes = self.marked_bytes, received_bytes
        self.older_s = elapsed_s

    @property
    def is_too_slow(self) -> bool:
        longest_s = STALLED_AFTER_S + self.receiver.announced_bytes / MIN_BYTES_PER_S
        return self.still_s >= STALLED_AFTER_S or self.taken_s > longest_s

    def left_s(self, now: float, ticked_s: float) -> float:
        """How long the rest of the frame will take to come, at the rate since the older mark. `ticked_s`: when the last
        tick was."""
        receiver = self.receiver
        if not receiver.missing_bytes:
            return inf if receiver.waits_for_client else 0.0
        received_bytes = receiver.received_bytes - self.older_bytes
        if not received_bytes:
            return inf
        elapsed_s = self.older_s
        if not receiver.waits_for_node:
            elapsed_s += now - max(ticked_s, self.read_since_s)
        if elapsed_s < JUDGED_AFTER_S:
            return 0.0
        return receiver.missing_bytes * elapsed_s / received_bytes


class RequestMemory:
    """Of one node. Invariants between two calls: `arriving_bytes` is the sum of what `_arriving` counts, and at most
    `half_bytes`; `_deferred_bytes` is the part of `_deferred` in it."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: queued.max.request.bytes; negative: no limit."""
        #: Each half. A single frame can have so much.
        self.half_bytes = limit_bytes // 2 if limit_bytes >= 0 else 1 << 62
        #: A connection whose unanswered requests take so much has no other one served.
        self.own_bytes = self.half_bytes // _OWN_PART
        self.arriving_bytes = 0
        self.served_bytes = 0
        #: What the connections of this node receive into.
        self.shared = SharedBuffer()
        self._arriving: dict[Receiver, _Arrival] = {}
        #: What those may take that do not wait for room, and for how much room a large frame waits.
        self._admitted_bytes = self.half_bytes * 3 // 4
        self._room_bytes = min(USUAL_BYTES, self._admitted_bytes // 4)
        #: Those whose frames wait for room, in order. Invariant: they are in `_arriving` and not admitted.
        self._deferred: dict[Receiver, _Arrival] = {}
        self._deferred_bytes = 0
        self._is_newest_next = False
        #: Receivers that wait until there is room to serve, in order. Invariant: there are none unless `served_bytes`
        #: is above `_low_bytes`, so that a `release` comes.
        self._unserved: dict[Receiver, None] = {}
        self._low_bytes = self.half_bytes // _LOW_PART
        self._ticked_s = 0.0
        #: How often `retry` was called.
        self._retries = 0
        #: Peers whose connections were closed since the last tick, by reason.
        self._closed: dict[str, list[str]] = {}

    def limit_frame(self, max_request_bytes: int) -> tuple[int, str]:
        """The largest frame that can be received, and the setting that limits it."""
        if max_request_bytes <= self.half_bytes:
            return max_request_bytes, "socket.request.max.bytes"
        return self.half_bytes, "half of queued.max.request.bytes"

    # -- serving -------------------------------------------------------------------------------------------

    def may_serve(self, size_bytes: int, beside_bytes: int) -> bool:
        """Whether a request of this size is served now. `beside_bytes`: what the others of its connection take that are
        not answered. If it is not served, the caller calls `wait_to_serve`."""
        if beside_bytes + size_bytes <= ALWAYS_SERVED_BYTES:
            return True
        if self._unserved:
            return False
        return self.served_bytes <= self._low_bytes or self.served_bytes + size_bytes <= self.half_bytes

    def wait_to_serve(self, receiver: Receiver) -> None:
        """Have `go_on` called when there is room to serve."""
        self._unserved[receiver] = None

    def release(self, size_bytes: int) -> None:
        """A request of this size is answered, or its client is gone."""
        self.served_bytes -= size_bytes
        if self._unserved and self.served_bytes <= self._low_bytes:
            # All of them, in their order. Those that find no room after all wait again, in this order.
            unserved, self._unserved = self._unserved, {}
            for receiver in unserved:
                receiver.go_on()

    # -- arriving ------------------------------------------------------------------------------------------

    def arriving_changed(self, receiver: Receiver, now: float) -> bool:
        """`receiver.arriving_bytes` is another than before, or another frame began. May abort receivers, also this
        one. False: its frame has to wait for room, until `go_on`."""
        arrival = self._arriving.get(receiver)
        if not receiver.arriving_bytes:
            self._remove_arrival(receiver)
            self._admit_deferred(now)
            return True
        if arrival is None or arrival.began_s != receiver.frame_began_s:
            self._remove_arrival(receiver)
            arrival = self._arriving[receiver] = _Arrival(receiver, now, self._retries)
        if receiver.missing_bytes and not arrival.is_admitted:
            if self._make_room(arrival, now):
                self._admit(arrival, now)
            elif receiver not in self._deferred:
                self._deferred[receiver] = arrival
                self.shared.limit_reads(SHORT_READ_BYTES)
        self._count(arrival)
        if self.arriving_bytes > self.half_bytes:
            self._shed(now)
        return receiver not in self._deferred

    def _size_bytes(self, arrival: _Arrival, *, is_admitted: bool) -> int:
        """What it counts for. A frame that is admitted counts for what it needs before long."""
        receiver = arrival.receiver
        if not is_admitted:
            return receiver.arriving_bytes
        return max(receiver.arriving_bytes, min(receiver.announced_bytes, self._room_bytes))

    def _count(self, arrival: _Arrival) -> None:
        size_bytes = self._size_bytes(arrival, is_admitted=arrival.is_admitted)
        self.arriving_bytes += size_bytes - arrival.counted_bytes
        if arrival.receiver in self._deferred:
            self._deferred_bytes += size_bytes - arrival.counted_bytes
        arrival.counted_bytes = size_bytes

    def _remove_arrival(self, receiver: Receiver) -> None:
        arrival = self._arriving.pop(receiver, None)
        if arrival is not None:
            self.arriving_bytes -= arrival.counted_bytes
            self._stop_deferring(arrival)

    def _stop_deferring(self, arrival: _Arrival) -> None:
        if self._deferred.pop(arrival.receiver, None) is not None:
            self._deferred_bytes -= arrival.counted_bytes
            if not self._deferred:
                self.shared.limit_reads()

    def _admit(self, arrival: _Arrival, now: float) -> None:
        self._stop_deferring(arrival)
        arrival.is_admitted = True
        arrival.read_since_s, arrival.read_since_retry = now, self._retries
        self._count(arrival)

    def _make_room(self, arrival: _Arrival, now: float, *, may_close: bool = True) -> bool:
        """Whether this frame, which is not admitted, has room now."""
        is_small = arrival.receiver.announced_bytes <= FIRST_BYTES
        limit_bytes = self.half_bytes if is_small else self._admitted_bytes
        own_bytes = 0 if arrival.receiver in self._deferred else arrival.counted_bytes
        most_bytes = limit_bytes - self._size_bytes(arrival, is_admitted=True) + own_bytes
        if self.arriving_bytes - self._deferred_bytes > most_bytes and may_close:
            self._close_costly(most_bytes + self._deferred_bytes, now, self._is_slow)
        return self.arriving_bytes - self._deferred_bytes <= most_bytes

    def _admit_deferred(self, now: float, *, may_close: bool = False) -> None:
        """Give those that wait the room that there is: in turns the one that waits longest, so that none waits for
        ever, and the newest, so that a thousand clients that send nothing more are not before all others."""
        while self._deferred:
            ends = [next(iter(self._deferred.values())), next(reversed(self._deferred.values()))]
            if self._is_newest_next:
                ends.reverse()
            for arrival in ends:
                if self._make_room(arrival, now, may_close=may_close):
                    break
            else:
                return
            self._is_newest_next = not self._is_newest_next
            self._admit(arrival, now)
            arrival.receiver.go_on()

    def _close_costly(
        self, most_bytes: int, now: float, may_close: Callable[[_Arrival, float], bool]
    ) -> None:
        """Close connections until the others take at most so much: of those that `may_close` names first those whose
        frames will take the most memory for the longest time. It gets an arrival and how long, in seconds, its frame
        will take to be complete."""
        costs: list[tuple[float, int, _Arrival]] = []
        for number, arrival in enumerate(self._arriving.values()):
            left_s = arrival.left_s(now, self._ticked_s)
            if may_close(arrival, left_s):
                costs.append((-left_s * arrival.counted_bytes, -number, arrival))
        # Of equal ones, as complete ones are, the newest goes first.
        for _, _, arrival in sorted(costs, key=itemgetter(0, 1)):
            if self.arriving_bytes <= most_bytes:
                break
            self._close(arrival.receiver, TOO_MUCH)

    def _is_slow(self, arrival: _Arrival, left_s: float) -> bool:
        if left_s < PATIENCE_S or arrival.receiver in self._deferred:
            return False
        was_seen = self._retries - arrival.read_since_retry >= _SEEN_AFTER_RETRIES
        return was_seen or not arrival.receiver.is_usual

    def _shed(self, now: float) -> None:
        """More than half is taken, because frames have grown beyond a usual size, or because very many wait."""
        self._close_costly(self.half_bytes, now, self._is_slow)
        self._close_costly(self.half_bytes, now, lambda each, left_s: each.counted_bytes > self._room_bytes)
        while self.arriving_bytes > self.half_bytes and self._deferred:
            # Those at both ends are next.
            [middle] = islice(self._deferred, len(self._deferred) // 2, len(self._deferred) // 2 + 1)
            self._close(middle, TOO_MUCH)
        self._close_costly(self.half_bytes, now, lambda each, left_s: True)

    def _close(self, receiver: Receiver, reason: str) -> None:
        self._remove_arrival(receiver)
        self._closed.setdefault(reason, []).append(receiver.peer)
        receiver.abort()

    # -- time ----------------------------------------------------------------------------------------------

    def retry(self, now: float) -> None:
        """Called at short intervals. Some of those that are in the way of others may have become slow."""
        self._retries += 1
        if self._deferred:
            self._admit_deferred(now, may_close=True)

    def tick(self, now: float) -> None:
        """Called every TICK_S. Closes the connections whose frames come too slowly."""
        elapsed_s, self._ticked_s = now - self._ticked_s, now
        for receiver, arrival in list(self._arriving.items()):
            if not receiver.missing_bytes or receiver.waits_for_node:
                continue  # its clock stands still
            is_read = not receiver.waits_for_client
            arrival.mark(now, elapsed_s, is_read=is_read)
            if is_read and arrival.is_too_slow:
                self._close(receiver, TOO_SLOW)
        self._admit_deferred(now)
        closed, self._closed = self._closed, {}
        for reason, peers in closed.items():
            named = peers[:_NAMED_PEERS]
            log.warning("connections closed", reason=reason, count=len(peers), peers=named, cause=reason)

    def remove(self, receiver: Receiver, now: float) -> None:
        """The connection is closed."""
        self._unserved.pop(receiver, None)
        if receiver in self._arriving:
            self._remove_arrival(receiver)
            self._admit_deferred(now)
