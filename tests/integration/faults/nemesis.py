"""What befalls the cluster, decided by a seed: every few seconds another set of faults, at times none."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from tests.integration.faults.network import CLIENTS, Network
from tests.integration.faults.nodes import Node

FAULTS = ("kill", "pause", "partition", "power", "full-disk")
#: From a good disk's to a bad one's.
_SYNC_DELAYS_US = (0, 2_000, 20_000)
Say = Callable[[str], None]


class Nemesis:
    """`run` for some time, then `heal`."""

    def __init__(
        self, nodes: list[Node], network: Network | None, seed: int, faults: list[str], say: Say
    ) -> None:
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self._nodes = nodes
        self._network = network
        self._rng = random.Random(seed)
        self._faults = faults
        self._say = say
        self._begin = {
            "kill": self._kill,
            "pause": self._pause,
            "partition": self._partition,
            "power": self._power,
            "full-disk": self._full_disk,
        }

    def run(self, duration_s: float) -> None:
        """Returns with everything healed, but perhaps not yet recovered."""
        until = time.monotonic() + duration_s
        while time.monotonic() < until:
            count = self._rng.choice([0, 1, 1, 1, 1, 2, 2, 3])
            chosen = self._rng.sample(self._faults, min(count, len(self._faults)))
            with ExitStack() as ends:
                for name in chosen:
                    ends.callback(self._begin[name]())
                if not chosen:
                    self._note("none", "nothing")
                # Short ones end before anybody noticed, long ones after clients gave up.
                time.sleep(self._rng.choice([0.5, 2, 4, 6, 12]))
            time.sleep(self._rng.choice([0.2, 1, 3, 6]))
            for node in self._nodes:
                if not node.is_running:
                    node.start(self._nodes)

    def heal(self) -> None:
        if self._network is not None:
            self._network.heal()
        for node in self._nodes:
            if node.has_own_disk:
                node.empty_disk()
            node.resume()
            node.start(self._nodes)

    def end_all(self) -> bool:
        """End all nodes at once in the worst way there is, and start them again. False where none may be ended."""
        if "power" in self._faults:
            self._lose_power(self._nodes, None)
        elif "kill" in self._faults:
            self._kill_all(self._nodes)
        else:
            return False
        self._start(self._nodes)
        return True

    def _note(self, kind: str, what: str, victims: list[Node] | None = None) -> None:
        if victims == []:
            return  # all chosen were dead already
        self.done[kind] += 1
        self._say(what)

    def _some(self, weights: tuple[int, ...]) -> list[Node]:
        """One node, two or all, with these weights; of those that live."""
        count = self._rng.choices(range(1, len(weights) + 1), weights)[0]
        chosen = self._rng.sample(self._nodes, min(count, len(self._nodes)))
        return [node for node in chosen if node.is_running]

    def _kill(self) -> Callable[[], None]:
        victims = self._some((6, 2, 2))
        self._kill_all(victims)
        return lambda: self._start(victims)

    def _kill_all(self, victims: list[Node]) -> None:
        for node in victims:
            node.kill()
        kind = "kill all" if len(victims) == len(self._nodes) else "kill"
        self._note(kind, f"kill -9 of {_names(victims)}", victims)

    def _power(self) -> Callable[[], None]:
        victims = self._some((4, 2, 4))
        self._lose_power(victims, self._rng if self._rng.random() < 0.5 else None)
        return lambda: self._start(victims)

    def _lose_power(self, victims: list[Node], rng: random.Random | None) -> None:
        for node in victims:
            node.kill()  # all before anything is taken back: they die together
        lost = [node.lose_power(rng) for node in victims]
        figures = f"{sum(x.bytes for x in lost):,} bytes, {sum(x.changes for x in lost)} changes lost"
        kind = "power loss of all" if len(victims) == len(self._nodes) else "power loss"
        self._note(kind, f"power loss of {_names(victims)}: {figures}", victims)

    def _start(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.undo is not None:
                node.undo.sync_delay_us = self._rng.choice(_SYNC_DELAYS_US)
            node.start(self._nodes)

    def _pause(self) -> Callable[[], None]:
        victims = self._some((6, 2, 1))
        for node in victims:
            node.pause()
        self._note("pause", f"SIGSTOP of {_names(victims)}", victims)

        def resume() -> None:
            for node in victims:
                node.resume()

        return resume

    def _partition(self) -> Callable[[], None]:
        assert self._network is not None
        node_ids = [node.node_id for node in self._nodes]
        self._rng.shuffle(node_ids)
        one, *others = node_ids
        shape = self._rng.choice(
            ["isolated", "isolated from nodes", "one way out", "one way in", "one link", "bridge"]
        )
        pairs: list[tuple[int, int]]
        if shape in ("isolated", "isolated from nodes"):
            pairs = [pair for other in others for pair in ((one, other), (other, one))]
            if shape == "isolated":
                pairs += [(one, CLIENTS), (CLIENTS, one)]
        elif shape == "one way out":
            pairs = [(one, other) for other in others]
        elif shape == "one way in":
            pairs = [(other, one) for other in others]
        elif shape == "one link":
            pairs = [(one, others[0])]
        else:  # one sees both others, which do not see each other
            pairs = [(others[0], others[-1]), (others[-1], others[0])]
        for sender, receiver in pairs:
            self._network.cut(sender, receiver)
        kind = "partition, one way" if shape.startswith("one") else "partition"
        links = ", ".join(f"{_name(a)} -> {_name(b)}" for a, b in pairs)
        self._note(kind, f"partition ({shape} of node {one}): {links}")
        return self._network.heal

    def _full_disk(self) -> Callable[[], None]:
        victims = self._some((6, 3, 1))
        # Below the reserve: produce is refused. Nothing at all: the write itself fails.
        leave_bytes = self._rng.choice([0, 0, 64 << 10, 8 << 20])
        for node in victims:
            node.fill_disk(leave_bytes)
        self._note("full disk", f"disk of {_names(victims)} full but for {leave_bytes:,} bytes", victims)

        def empty() -> None:
            for node in victims:
                node.empty_disk()

        return empty


def _names(nodes: list[Node]) -> str:
    ids = ", ".join(str(node.node_id) for node in nodes)
    return f"node {ids}" if len(nodes) == 1 else f"nodes {ids}"


def _name(node_id: int) -> str:
    return "clients" if node_id == CLIENTS else str(node_id)
