"""One direction between two nodes: what happens to everything that travels it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulator.loop import SimulatedLoop

#: How many chunks a corrupting link knows, to send them again.
CHUNKS_SEEN = 32


@dataclass
class LinkDelay:
    """Travelling time: a floor, an exponential part, and now and then a spike."""

    min_s: float = 0.000_05
    mean_extra_s: float = 0.000_15
    spike_rate: float = 0.005
    spike_s: float = 0.02

    def sample_s(self, rng: random.Random) -> float:
        delay_s = self.min_s + rng.expovariate(1.0) * self.mean_extra_s
        if rng.random() < self.spike_rate:
            delay_s += rng.random() * self.spike_s
        return delay_s


class Link:
    """Carries events from `source` to `target`.

    cut: what would arrive is lost. stalled: it is held, and arrives when the stall ends. refusing: a new connection is
    refused before anything travels. corrupting: a share of what is sent becomes something else. Each condition is
    counted by who imposed it: of two cuts that overlap, the end of one leaves the other.
    """

    def __init__(
        self, loop: SimulatedLoop, rng: random.Random, source: str, target: str, delay: LinkDelay
    ) -> None:
        self.source = source
        self.target = target
        #: When nobody has made it slow.
        self.delay = delay
        self._loop = loop
        self._rng = rng
        # Whoever imposes a condition holds a key of it. Dicts for their order.
        self._cuts: dict[object, None] = {}
        self._stalls: dict[object, None] = {}
        self._slow: dict[object, LinkDelay] = {}
        self._refusals: dict[object, None] = {}
        self._corruptions: dict[object, float] = {}
        #: Chunks of any connection that were sent while the link was corrupting.
        self._seen: deque[bytes] = deque(maxlen=CHUNKS_SEEN)
        #: Arrivals held by the stall, in order. Invariant: empty unless stalled.
        self._held: list[tuple[Callable[[], None], Callable[[], None]]] = []

    @property
    def is_cut(self) -> bool:
        return bool(self._cuts)

    @property
    def is_refusing(self) -> bool:
        """Connections from `source` to `target` are refused at once. Open ones are not affected."""
        return bool(self._refusals)

    def corrupted(self, chunk: bytes) -> list[bytes]:
        """What is sent on a connection instead of this chunk, which is not empty; most often the chunk itself."""
        if not self._corruptions:
            return [chunk]
        self._seen.append(chunk)
        if self._rng.random() >= next(reversed(self._corruptions.values())):
            return [chunk]
        how = self._rng.choice(("flip", "lose", "double", "replay"))
        if how == "flip":
            flipped = bytearray(chunk)
            flipped[self._rng.randrange(len(chunk))] ^= 1 << self._rng.randrange(8)
            return [bytes(flipped)]
        if how == "lose":
            return []
        return [chunk, chunk if how == "double" else self._rng.choice(self._seen)]

    def carry(self, arrive: Callable[[], None], lose: Callable[[], None], not_before_s: float = 0.0) -> float:
        """Have `arrive` called after the link's delay, or `lose` if the link is cut by then.

        `not_before_s` keeps the order of a stream. Returns the planned moment.
        """
        delay = next(reversed(self._slow.values()), self.delay)
        at_s = max(self._loop.time() + delay.sample_s(self._rng), not_before_s)
        self._loop.call_at(at_s, self._arrived, arrive, lose, context=self._loop.world.new_context())
        return at_s

    def cut(self) -> object:
        """Returns the key that ends this cut."""
        key = object()
        self._cuts[key] = None
        return key

    def end_cut(self, key: object) -> bool:
        """Whether that made the link work again; a key that has ended changes nothing."""
        was_cut = self.is_cut
        self._cuts.pop(key, None)
        return was_cut and not self.is_cut

    def end_cuts(self) -> bool:
        was_cut = self.is_cut
        self._cuts.clear()
        return was_cut

    def slow(self, delay: LinkDelay) -> object:
        """Everything sent from now on takes this; of several, the last one counts. Returns the key that ends it."""
        key = object()
        self._slow[key] = delay
        return key

    def end_slow(self, key: object) -> None:
        self._slow.pop(key, None)

    def stall(self) -> object:
        """Returns the key that ends this stall."""
        key = object()
        self._stalls[key] = None
        return key

    def end_stall(self, key: object) -> None:
        self._stalls.pop(key, None)
        if not self._stalls:
            self._release()

    def refuse(self) -> object:
        """Returns the key that ends this refusal."""
        key = object()
        self._refusals[key] = None
        return key

    def end_refusal(self, key: object) -> None:
        self._refusals.pop(key, None)

    def corrupt(self, share: float) -> object:
        """This share of the chunks that are sent is changed, lost, doubled, or followed by another one that was sent
        before, maybe on another connection; of several shares, the last one counts. Returns the key that ends it."""
        key = object()
        self._corruptions[key] = share
        return key

    def end_corruption(self, key: object) -> None:
        self._corruptions.pop(key, None)
        if not self._corruptions:
            self._seen.clear()

    def restore(self) -> None:
        """Neither slow, stalled, refusing nor corrupting. (The network ends cuts: it resets what lost bytes.)"""
        self._slow.clear()
        self._refusals.clear()
        self._corruptions.clear()
        self._seen.clear()
        self._stalls.clear()
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for arrive, lose in held:
            self._loop.call_soon(self._arrived, arrive, lose, context=self._loop.world.new_context())

    def _arrived(self, arrive: Callable[[], None], lose: Callable[[], None]) -> None:
        if self.is_cut:
            lose()
        elif self._stalls:
            self._held.append((arrive, lose))
        else:
            arrive()
