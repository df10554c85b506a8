"""How a replica is away, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.cli.divergence.play import Play


def _nothing(_: Play) -> None:
    pass


class Variant(NamedTuple):
    """What is done to the replica B, on nodes that the demonstration has started itself."""

    name: str
    text: str
    leave: Callable[[Play], None]
    come_back: Callable[[Play], None]
    midway: Callable[[Play], None] = _nothing
    """Between what the others compact first, and what is written then."""
    prepare: Callable[[Play], None] = _nothing
    """Before anything is written."""
    shows_damage: bool = True
    """Whether all scenarios damage a cluster without coordination. False: none does, because B starts anew."""
    node_count: int = 3


def _kill(play: Play) -> None:
    play.local.kill(play.away)


def _start(play: Play) -> None:
    play.brokers.start(play.away)


def _start_twice(play: Play) -> None:
    _start(play)
    play.returned()
    play.local.kill(play.away)
    _start(play)


def _wipe_and_start(play: Play) -> None:
    play.local.wipe(play.away)
    _start(play)


def _remove_and_add(play: Play) -> None:
    """The others go on without it, and remove what only B needed."""
    play.move([node_id for node_id in play.replicas if node_id != play.away])
    play.churn("the others compact, and B is no member any more")
    _start(play)
    play.move([play.away, *(node_id for node_id in play.replicas if node_id != play.away)])


def _change_leader(play: Play) -> None:
    """The one that is called C in the specification leads now, whoever led before."""
    play.topics.lead(play.others[-1], play.replicas)


def _add_fourth(play: Play) -> None:
    play.move([*play.replicas, max(play.replicas) + 1])


def _stop(play: Play) -> None:
    play.brokers.stop(play.away)


KILLED = Variant("killed", "B is killed, and started again", _kill, _start)
STOPPED = Variant("stopped", "B is stopped, and started again", _stop, _start)
VARIANTS = {
    variant.name: variant
    for variant in (
        KILLED,
        STOPPED,
        Variant(
            "paused",
            "B hangs (SIGSTOP), and goes on",
            lambda play: play.local.pause(play.away),
            lambda play: play.local.resume(play.away),
        ),
        Variant(
            "leader-change",
            "B is stopped, and the leader changes while B is away",
            _stop,
            _start,
            midway=_change_leader,
        ),
        Variant(
            "idle-restart", "B is killed once more when it is back, and nobody writes", _kill, _start_twice
        ),
        Variant(
            "fourth-replica",
            "a fourth replica is added before B is killed",
            _kill,
            _start,
            prepare=_add_fourth,
            node_count=4,
        ),
        Variant(
            "removed",
            "B is removed instead of coming back, and added again later with its old folder",
            _kill,
            _remove_and_add,
            shows_damage=False,
        ),
        Variant(
            "wiped",
            "B comes back with an empty folder",
            _kill,
            _wipe_and_start,
            shows_damage=False,
        ),
    )
}
#: Those that need no more than two commands that stop and start a broker.
FOR_OTHER_CLUSTERS = ("stopped", "leader-change")
