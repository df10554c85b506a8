"""Connections and frames: many, endless, unfinished, wrong."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable

from protocol.messages.metadata import MetadataRequest
from tests.hostile.attacks.attack import Seen, close_all, outcome
from tests.hostile.target import Target
from tests.integration.wire import Wire

MIB = 1 << 20
#: What socket.request.max.bytes allows by default.
_ANNOUNCED = struct.pack(">i", 100 * MIB)
_SIZES = (2**31 - 1, -1, -(2**31), 100 * MIB + 1, 0, 1, 2, 3, 7)


def unfinished_frames(target: Target) -> Seen:
    """1,000 connections announce a request of 100 MiB, send 70 KB of it, and stall."""
    return _hold(target, 1000, _ANNOUNCED + bytes(70_000), 5)


def large_frames(target: Target) -> Seen:
    """60 connections announce a request of 100 MiB, send 99 MiB of it, and stall."""
    return _hold(target, 60, _ANNOUNCED + bytes(99 * MIB), 2)


def _hold(target: Target, count: int, data: bytes, hold_s: float) -> Seen:
    """Send `data` on each of so many connections, as far as the cluster takes it, and wait."""
    seen = Seen()
    wires: list[Wire] = []
    for _ in range(count):
        try:
            wires += target.connections(1, timeout_s=5)
            wires[-1].socket.sendall(data)
        except TimeoutError:
            seen.counts["not read"] += 1
        except OSError:
            seen.counts["refused"] += 1
    time.sleep(hold_s)
    seen.counts.update(outcome(wire, 0.001) for wire in wires)
    close_all(wires)
    return seen


def slow_frames(target: Target) -> Seen:
    """1,000 connections send a request of 100 MiB, one byte a second."""
    wires = target.connections(1000)
    for wire in wires:
        wire.socket.settimeout(1)
        with contextlib.suppress(OSError):
            wire.socket.sendall(_ANNOUNCED + b"\0\0\0\3")
    for _ in range(15):
        for wire in wires:
            with contextlib.suppress(OSError):
                wire.socket.send(b"x")
        time.sleep(1)
    seen = Seen()
    seen.counts.update(outcome(wire, 0.001) for wire in wires)
    close_all(wires)
    return seen


def idle_connections(target: Target) -> Seen:
    """3,000 connections that say nothing, for ten seconds."""
    wires = target.connections(3000)
    time.sleep(10)
    seen = Seen()
    seen.counts.update(outcome(wire, 0.001) for wire in wires)
    close_all(wires)
    return seen


def many_connections(target: Target) -> Seen:
    """Up to 1,000 new connections a second, closed at once, for ten seconds."""
    seen = Seen()
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < 10:
        if seen.counts["connections"] < passed_s * 1000:
            close_all(target.connections(1))
            seen.counts["connections"] += 1
        else:
            time.sleep(0.001)
    return seen


def frame_sizes(target: Target) -> Seen:
    """Frames that announce an impossible size, or one that no request has. Each connection has to be closed."""
    seen = Seen()
    for size in _SIZES:
        for _ in range(100):
            (wire,) = target.connections(1)
            wire.socket.sendall(struct.pack(">i", size) + bytes(max(0, min(size, 7))))
            became = outcome(wire, 2)
            wire.socket.close()
            seen.counts[became] += 1
            if became != "closed":
                seen.defects.append(f"a frame of {size} bytes: {became}")
                break
    return seen


def unread_answers(target: Target) -> Seen:
    """200 connections ask for the metadata of all topics 2,000 times each, and never read an answer."""
    seen = Seen()
    wires: list[Wire] = []
    for number in range(200):
        node_id = list(target.nodes)[number % len(target.nodes)]
        wires.append(target.connect(node_id, 0.05, receive_buffer_bytes=4096))
    request = MetadataRequest(topics=None)
    for _ in range(20):
        for wire in wires:
            seen.counts[_sent(lambda wire=wire: [wire.send(request, 12) for _ in range(100)])] += 1  # type: ignore[misc]
    time.sleep(5)
    close_all(wires)
    return seen


def _sent(send: Callable[[], object]) -> str:
    try:
        send()
    except TimeoutError:
        return "not read"
    except OSError:
        return "closed"
    return "sent"
