"""Faults in the middle of a load: what is done to a cluster, and after how many acknowledgements.

A scenario is a function that is run in a thread beside the load. It waits for shares of the records to be
acknowledged, never for the clock, except where the time that passes is the fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.load.progress import Progress
from pipeline.trials.local_cluster import LocalCluster

_IN_SYNC_TIMEOUT_S = 60.0
_POLL_S = 0.2
# Of silence: several election timeouts (1 s) each.
_DOWN_FOR_S = 4.0
_FROZEN_FOR_S = 4.0
# Longer than the load's producers wait for an answer (`producer_task`: 10 s): they have given the frozen leader up and
# sent everything again to its successor when it goes on with what they sent before.
_FROZEN_BEYOND_PATIENCE_S = 15.0
# A share of the records that shows, when it is acknowledged, that the remaining nodes go on by themselves.
_SOME = 0.05


class Injection:
    """`with Injection(...) as injection:` around a load whose progress goes to `report`.

    The end of the block waits until the scenario is through, and raises what went wrong with it, or that the load was
    over too soon.
    """

    def __init__(
        self,
        scenario: Callable[[Injection], None],
        cluster: LocalCluster,
        topic: str,
        records: int,
        say: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.events: list[dict[str, Any]] = []
        """`what` was done or found, and `at_us` (wall time). The first is noted before its deed: gaps count from it."""
        self._scenario = scenario
        self._records = records
        self._say = say
        self._changed = threading.Condition()
        self._acknowledged = 0
        self._has_load_ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    # -- the load's side ---------------------------------------------------------------------------------

    def __enter__(self) -> Injection:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._changed:
            self._has_load_ended = True
            self._changed.notify_all()
        if kind is not None:
            return  # what ended the block is the news, and the end of the cluster will be that of the scenario
        self._thread.join()
        if self._error is not None:
            raise self._error

    def report(self, progress: Progress) -> None:
        with self._changed:
            self._acknowledged = progress.acknowledged
            self._changed.notify_all()

    # -- the scenario's side -----------------------------------------------------------------------------

    def wait_for(self, share: float) -> None:
        """Until this share of all records is acknowledged. Raises PipelineError where the load ends before."""
        wanted = int(share * self._records)
        with self._changed:
            self._changed.wait_for(lambda: self._acknowledged >= wanted or self._has_load_ended)
            if self._has_load_ended:
                raise PipelineError("the load ended before the fault; give it more --records")

    def wait_for_more(self, share: float) -> None:
        """Until so many more are acknowledged than now: somebody serves. Raises as wait_for does."""
        with self._changed:
            now = self._acknowledged
        self.wait_for(now / self._records + share)

    def let_pass(self, seconds: float) -> None:
        """Until the time has passed, or the load has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_load_ended, seconds)

    def leader(self) -> int:
        """The node that leads partition 0. Raises PipelineError where there is none."""
        leader = Cluster(self.cluster.bootstrap_server).leader(self.topic, 0)
        if leader is None:
            raise PipelineError(f"partition 0 of {self.topic} has no leader")
        return leader

    def kill(self, *node_ids: int) -> None:
        self.note(f"kill -9 of {_nodes(node_ids)}")
        self.cluster.kill(*node_ids)

    def start_again(self, *node_ids: int) -> None:
        self.cluster.up()
        self.note(f"{_nodes(node_ids)} back")

    def wait_in_sync(self) -> None:
        """As `await_in_sync`, of the topic."""
        await_in_sync(self.cluster, [self.topic], _IN_SYNC_TIMEOUT_S)
        self.note("all replicas in sync")

    def note(self, what: str) -> None:
        """Add to `events`."""
        self.events.append({"at_us": time.time_ns() // 1000, "what": what})
        self._say(what)

    def _run(self) -> None:
        try:
            self._scenario(self)
        except BaseException as error:
            # Kept for the end of the block, which is in the load's thread.
            self._error = error


def _nodes(node_ids: tuple[int, ...]) -> str:
    return ("node " if len(node_ids) == 1 else "nodes ") + ", ".join(map(str, node_ids))


def kill_leader(injection: Injection) -> None:
    """The leader of a partition dies and comes back some seconds later."""
    injection.wait_for(0.4)
    leader = injection.leader()
    injection.note(f"kill -9 of node {leader}, the leader of partition 0")
    injection.cluster.kill(leader)
    injection.let_pass(_DOWN_FOR_S)
    injection.start_again(leader)


def await_in_sync(cluster: LocalCluster, topics: Sequence[str], timeout_s: float) -> None:
    """Until every node says that all replicas of the topics are in sync. Raises PipelineError when time is up.

    Every node is asked, because only a partition's leader knows; by a client that knows no other node yet, because the
    library does not tell which of the brokers it asked.
    """
    deadline = time.monotonic() + timeout_s
    while not all(Cluster(address).is_in_sync(topic) for address in cluster.addresses for topic in topics):
        if time.monotonic() > deadline:
            raise PipelineError(f"the replicas are not in sync {timeout_s:.0f} s after the fault")
        time.sleep(_POLL_S)


def kill_each(injection: Injection) -> None:
    """Nodes 1, 2 and 3 die one after the other, the next when the last has caught up."""
    for node_id, share in ((1, 0.1), (2, 0.35), (3, 0.6)):
        injection.wait_for(share)
        injection.kill(node_id)
        injection.wait_for_more(_SOME)
        injection.start_again(node_id)
        injection.wait_in_sync()


def kill_two(injection: Injection) -> None:
    """A leader and a second node die together, the third is alone, then both are back."""
    injection.wait_for(0.4)
    leader = injection.leader()
    victims = (leader, leader % 3 + 1)
    injection.kill(*victims)
    injection.let_pass(_DOWN_FOR_S)
    injection.start_again(*victims)
    injection.wait_in_sync()


def freeze_leader(injection: Injection) -> None:
    """A leader hangs (SIGSTOP) for longer than an election takes; later one for longer than its clients wait."""
    for share, seconds in ((0.2, _FROZEN_FOR_S), (0.5, _FROZEN_BEYOND_PATIENCE_S)):
        injection.wait_for(share)
        leader = injection.leader()
        injection.note(f"SIGSTOP of node {leader}")
        injection.cluster.freeze(leader)
        injection.let_pass(seconds)
        injection.cluster.thaw(leader)
        injection.note(f"SIGCONT of node {leader}")
        injection.wait_in_sync()


def wipe_node(injection: Injection) -> None:
    """A leader dies and loses its data directory; when it has caught up, another dies, and its new copy counts."""
    injection.wait_for(0.2)
    wiped = injection.leader()
    injection.kill(wiped)
    injection.cluster.wipe(wiped)
    injection.note(f"data of node {wiped} deleted")
    injection.wait_for_more(_SOME)
    injection.start_again(wiped)
    injection.wait_in_sync()
    other = wiped % 3 + 1
    injection.kill(other)
    injection.wait_for_more(_SOME)
    injection.start_again(other)
    injection.wait_in_sync()


def restart_all(injection: Injection) -> None:
    """All three nodes die at once and are started again."""
    injection.wait_for(0.4)
    injection.kill(1, 2, 3)
    injection.start_again(1, 2, 3)
    injection.wait_in_sync()


SCENARIOS: dict[str, Callable[[Injection], None]] = {
    "kill-each": kill_each,
    "kill-two": kill_two,
    "freeze-leader": freeze_leader,
    "wipe-node": wipe_node,
    "restart-all": restart_all,
}
"""Those of `fault-test`, by the names that it takes."""
