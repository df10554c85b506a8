"""One client connection: frames come in, answers leave in request order, nothing is awaited.

A plain synchronous function handles a request as soon as its frame is complete. The handler answers at once, or keeps
the `Request` and answers later. The connection holds an answer back until all earlier ones are sent: Kafka clients
match answers by order (client-behaviour.md B.1). The answers of one loop iteration are sent together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from broker.network import os_errors, tcp_state
from broker.network.answer_memory import SMALL_ANSWER_BYTES
from broker.network.connection_registry import ConnectionRegistry
from broker.network.request import Dispatcher, Request, served_bytes
from broker.scheduling.turn import Turn
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.framing import FrameReader
from protocol.headers import parse_request_header
from storage.disk import Buffer

#: Unanswered requests at which a connection is no longer read. Kafka serves one at a time, and librdkafka keeps at
#: most a few in flight (5 for idempotent producers), so this bounds only a hostile or broken client.
MAX_UNANSWERED = 256
#: Bytes of unsent answers at which the connection's next requests wait until these have left. A client that asks for
#: much data and reads nothing must not fill the memory. One answer may be larger.
MAX_READY_BYTES = 1 << 20
#: Held requests that are served in a row while other connections have some, too.
SERVED_IN_A_ROW = 8


class ClientConnection(asyncio.BufferedProtocol):
    """Server side of one client connection on one listener."""

    def __init__(
        self,
        listener: str,
        dispatcher: Dispatcher,
        turn: Turn,
        max_request_bytes: int,
        now: Callable[[], float],
        registry: ConnectionRegistry,
    ) -> None:
        self.listener = listener
        self.peer = "?"
        #: The client's address without its port.
        self.host = "?"
        self.own_host = "?"
        self.is_closed = False
        self.last_active_s = 0.0
        #: See `broker.scheduling.commit_delay`.
        self.answered_s = 0.0
        self.resends_at_once = False
        self._dispatcher = dispatcher
        self._turn = turn
        self._now = now
        self._registry = registry
        self._memory = registry.memory
        self._traffic = registry.traffic
        self.steady_s = turn.budget.now
        limit, name = self._memory.limit_frame(max_request_bytes)
        self._frames = FrameReader(limit, name, self._memory.shared)
        # The transport calls this before each read, so it is bound directly and costs no further call.
        self.get_buffer = self._frames.get_buffer  # type: ignore[method-assign]
        self._transport: asyncio.Transport | None = None
        #: Unanswered and unsent requests, oldest first, and their part of `RequestMemory.served_bytes`.
        self._requests: deque[Request] = deque()
        self._served_bytes = 0
        #: Frames that wait, oldest first: the connection `_is_congested`, the loop's budget was spent, or
        #: the node has no room to serve them.
        self._held: deque[memoryview] = deque()
        #: See `broker.network.request_memory.Receiver`.
        self.arriving_bytes = 0
        self.received_bytes = 0
        self.frame_began_s = 0.0
        #: `_serve_held` waits for the loop's budget.
        self._waits_for_loop = False
        #: Waits for `go_on`, and is not read.
        self._waits_for_room = False
        #: Bytes of large answers that are encoded and not sent: they wait for the end of the loop iteration, or behind
        #: an unanswered request.
        self.ready_bytes = 0
        self._is_queued = False
        self._write_paused = False
        self._read_paused = False
        self._is_unread_recorded = False
        #: How many requests of this client are being served in pieces. No other request is served meanwhile.
        self._holds = 0
        #: Set while the client is above a quota. None of its requests is served then.
        self._unmute_timer: asyncio.TimerHandle | None = None

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername: Any = transport.get_extra_info("peername")
        if peername:
            self.host, self.peer = str(peername[0]), f"{peername[0]}:{peername[1]}"
            self.own_host = str(transport.get_extra_info("sockname", peername)[0])
        self.last_active_s = self._now()
        self._registry.admit(self)

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._now()
        self.received_bytes += nbytes
        self._traffic.received_bytes += nbytes
        was_pending = self._frames.missing_bytes > 0
        try:
            frames = self._frames.received(nbytes)
            for frame, owned in frames:
                size_bytes = served_bytes(frame)
                if self._held or not self._may_serve(size_bytes):
                    self._held.append(frame if owned else memoryview(bytearray(frame)))
                else:
                    self._serve(frame, owned, size_bytes)
                if self.is_closed:
                    return
        except ProtocolError as error:
            self.refuse(error)
            return
        except OSError as error:
            os_errors.report(error)
            self.abort()
            return
        is_pending = self._frames.missing_bytes > 0
        if is_pending and (frames or not was_pending):
            self.frame_began_s = self.last_active_s
        if is_pending or was_pending or self._held:
            self._arriving_changed()
        if self._held or len(self._requests) > MAX_UNANSWERED:
            self._pause_reading()

    def _may_serve(self, size_bytes: int) -> bool:
        """Whether a request of this size may be served now. If only the node's time or memory is short, it waits."""
        if self._is_congested:
            return False
        if self._turn.budget.is_spent():
            self._wait_for_loop()
            return False
        if self._memory.may_serve(size_bytes, self._served_bytes):
            return True
        self._memory.wait_to_serve(self)
        self._wait_for_room()
        return False

    def _serve(self, frame: memoryview, owned: bool, size_bytes: int) -> None:
        header, position = parse_request_header(frame)
        request = Request(self, header, owned, size_bytes)
        self._requests.append(request)
        if request.api_key == ApiKey.PRODUCE:
            self._turn.commit_delay.record_request(self)
        self._served_bytes += size_bytes
        self._memory.served_bytes += size_bytes
        self._dispatcher.dispatch(request, frame, position)
        if not self._holds and (waiting_bytes := request.long_poll_waits()):
            self._release(waiting_bytes)

    def _release(self, size_bytes: int) -> None:
        self._served_bytes -= size_bytes
        self._memory.release(size_bytes)

    def _serve_held(self) -> None:
        """Serve the frames that were held. This has a loop iteration of its own, so that answers are sent before it."""
        self._waits_for_loop = False
        served = 0
        try:
            while self._held and not self.is_closed and self._may_serve(size := served_bytes(self._held[0])):
                self._serve(self._held.popleft(), True, size)
                served += 1
                if served % SERVED_IN_A_ROW == 0 and self._held and self._turn.budget.is_wanted:
                    self._wait_for_loop()
                    break
        except ProtocolError as error:
            self.refuse(error)
        self._arriving_changed()
        self.resume_reading()

    def _arriving_changed(self) -> None:
        """What `arriving_bytes` is made of may be another."""
        size_bytes = self._frames.pending_bytes + sum(map(len, self._held))
        if size_bytes != self.arriving_bytes and not self.is_closed:
            self.arriving_bytes = size_bytes
            if not self._memory.arriving_changed(self, self._now()):
                self._wait_for_room()

    def _wait_for_loop(self) -> None:
        """Serve the held frames in a later loop iteration."""
        if not self._waits_for_loop:
            self._waits_for_loop = True
            self._turn.budget.wait(self._serve_held)

    def _wait_for_room(self) -> None:
        """Do not read until `go_on`."""
        self._waits_for_room = True
        self._pause_reading()

    def go_on(self) -> None:
        self._waits_for_room = False
        self._resume()

    @property
    def announced_bytes(self) -> int:
        return self._frames.announced_bytes

    @property
    def missing_bytes(self) -> int:
        return self._frames.missing_bytes

    @property
    def is_usual(self) -> bool:
        return self._frames.is_usual

    @property
    def waits_for_client(self) -> bool:
        return self._write_paused or self._unmute_timer is not None

    @property
    def waits_for_node(self) -> bool:
        return self._waits_for_room or self._waits_for_loop or self._holds > 0

    @property
    def is_backed_up(self) -> bool:
        """So many answers wait to be sent that no more should be made."""
        size_bytes = self.ready_bytes
        return size_bytes > 0 and size_bytes > min(MAX_READY_BYTES, self._registry.answers.answer_bytes)

    @property
    def _is_congested(self) -> bool:
        return (
            self._write_paused
            or self.is_backed_up
            or len(self._requests) > MAX_UNANSWERED
            or self._served_bytes >= self._memory.own_bytes
            or self._unmute_timer is not None
            or self._holds > 0
        )

    def hold_requests(self) -> None:
        """Serve no request of this client until `release_requests` was called once for each `hold_requests`. Answers
        are still sent."""
        self._holds += 1
        self._pause_reading()

    def release_requests(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._release(sum(request.long_poll_waits() for request in self._requests))
            self._resume()

    def mute(self, throttle_ms: int) -> None:
        """Serve no request of this client for `throttle_ms`. Answers are still sent."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + throttle_ms / 1000
        if self._unmute_timer is not None:
            until_s = max(until_s, self._unmute_timer.when())
            self._unmute_timer.cancel()
        self._unmute_timer = loop.call_at(until_s, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._unmute_timer = None
        self._resume()

    def refuse(self, error: ProtocolError) -> None:
        """Close the connection because of a request."""
        self._registry.log_bad_request(self, error)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
            self._unmute_timer = None
        self._release(self._served_bytes)
        self._requests.clear()
        self._held.clear()
        self._turn.commit_delay.remove(self)
        self._memory.remove(self, self._now())
        self._registry.remove(self)

    def pause_writing(self) -> None:
        """The client does not read its answers. None of its requests is served until it does."""
        self._write_paused = True
        self._pause_reading()
        self._record_unread()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._record_unread()
        self._resume()

    # -- answers -----------------------------------------------------------------------------------------

    def answer_ready(self) -> None:
        if self.ready_bytes > SMALL_ANSWER_BYTES:
            # It may leave some iterations later only, and others are answered until then.
            self._record_unread()
        if not self._is_queued and not self.is_closed:
            self._is_queued = True
            self._turn.add_sender(self)

    def flush(self) -> None:
        """Send every answer that has no unanswered request before it. Called once per loop iteration."""
        self._is_queued = False
        transport = self._transport
        if self.is_closed or transport is None:
            return
        requests, traffic = self._requests, self._traffic
        out: list[Buffer] = []
        answered_bytes = 0
        while requests:
            request = requests[0]
            parts = request.parts
            if parts is None:
                break
            if request.throttle_ms:
                parts = request.throttled_parts()
            answered_bytes += requests.popleft().size_bytes
            traffic.by_api[request.api_key].add(self.steady_s() - request.began_s)
            out.extend(parts)
            if request.has_waited and request.api_key == ApiKey.PRODUCE and not requests:
                self._turn.commit_delay.record_answer(self)
        self._release(answered_bytes)
        if self.ready_bytes:
            self.ready_bytes = sum(len(part) for request in requests for part in request.parts or ())
        traffic.sent_bytes += sum(map(len, out))
        if len(out) == 1:
            transport.write(out[0])
        elif out:
            transport.writelines(out)
        if self._write_paused or self.ready_bytes or self._is_unread_recorded:
            self._record_unread()
        if self._read_paused and len(requests) <= MAX_UNANSWERED // 2:
            self._resume()

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not read. Up to 64 KiB in the transport's buffer are not counted."""
        if not self._write_paused or self._transport is None:
            return self.ready_bytes
        return self.ready_bytes + self._transport.get_write_buffer_size()

    def _record_unread(self) -> None:
        unread = self.unread_bytes
        self._is_unread_recorded = unread > 0
        self._registry.answers.record_unread(self, unread)

    # -- closing -----------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not self._requests and not self._held

    def abort_if_gone(self) -> None:
        """Close the connection if the client has closed its side. A connection that is not read does not notice."""
        if self._read_paused and not self.is_closed and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None and tcp_state.is_closed_by_peer(sock):
                self.abort()

    def abort(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send the answers that can be sent, and close the connection behind them."""
        self.flush()
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    def _pause_reading(self) -> None:
        if not self._read_paused and not self.is_closed and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._held:
            self._wait_for_loop()
        else:
            self.resume_reading()

    def resume_reading(self) -> None:
        if (
            self._read_paused
            and not self._held
            and not self._write_paused
            and self._unmute_timer is None
            and not self._holds
            and not self._waits_for_room
            and not self.is_closed
            and self._transport is not None
        ):
            self._read_paused = False
            self._transport.resume_reading()
