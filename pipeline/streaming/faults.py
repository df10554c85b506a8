"""What befalls a streaming run: brokers killed at an interval, the queries' driver killed once, in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.streaming.driver import QueryProcess, Repeated
from pipeline.streaming.spec import Topics
from pipeline.trials.faults import await_in_sync
from pipeline.trials.local_cluster import LocalCluster

# Several election timeouts of a broker (1 s each): the cluster has settled without it before it comes back.
_DOWN_FOR_S = 5.0
_IN_SYNC_TIMEOUT_S = 90.0


class Faults(threading.Thread):
    """Kills a broker every `kill_every_s`, each time the leader of a partition of the source topic or, in turn, of the
    sink topic; and the driver of the queries in the middle of the stream, if it is to be killed.

    A broker is killed only when all replicas are in sync again after the one before: with two of three down, a cluster
    stands still, and rightly.
    """

    def __init__(
        self,
        cluster: LocalCluster | None,
        topics: Topics,
        queries: QueryProcess,
        duration_s: float,
        kill_every_s: float | None,
        kills_driver: bool,
        say: Callable[[str], None],
    ) -> None:
        """`cluster`: whose brokers may be killed; None with `kill_every_s` None."""
        super().__init__(name="faults", daemon=True)
        self.events: list[dict[str, Any]] = []
        """`what` was done or found, and `at_us` (wall time)."""
        self.repeats: list[Repeated] = []
        """Batches that a killed driver had begun."""
        self.broker_kills = 0
        self.driver_kills = 0
        self.failure: BaseException | None = None
        """Why it did not come to its end."""
        self._cluster = cluster
        self._topics = topics
        self._queries = queries
        self._say = say
        self._is_over = threading.Event()
        self._plan = plan(duration_s, kill_every_s, kills_driver)

    def end(self) -> None:
        """Begin nothing more, finish what has begun (a broker that is down is started again), and raise what went
        wrong; PipelineError where the stream was over too soon for what was planned."""
        self._is_over.set()
        self.join()
        if self.failure is not None:
            raise self.failure
        for kind, kills in (("broker", self.broker_kills), ("driver", self.driver_kills)):
            if kills == 0 and any(deed == kind for _, deed in self._plan):
                raise PipelineError(
                    f"the stream ended before a {kind} was killed; give it a longer --duration"
                )

    def run(self) -> None:
        started = time.monotonic()
        try:
            for at_s, deed in self._plan:
                if self._is_over.wait(max(0.0, started + at_s - time.monotonic())):
                    return
                if deed == "driver":
                    self._kill_driver()
                else:
                    self._kill_broker()
        except BaseException as error:
            # For the thread that ends it.
            self.failure = error

    def _kill_broker(self) -> None:
        assert self._cluster is not None, "given where brokers are to be killed"
        topic = (self._topics.source, self._topics.sink)[self.broker_kills % 2]
        # Another partition each time, so that it is not the same broker's turn again.
        partitions = len(Cluster(self._cluster.bootstrap_server).offsets(topic))
        partition = self.broker_kills // 2 % partitions
        leader = Cluster(self._cluster.bootstrap_server).leader(topic, partition)
        if leader is None:
            raise PipelineError(f"partition {partition} of {topic} has no leader")
        self._note(f"kill -9 of node {leader}, the leader of {topic}-{partition}")
        self._cluster.kill(leader)
        self.broker_kills += 1
        # The end of the stream does not shorten it: a broker is down for as long each time.
        time.sleep(_DOWN_FOR_S)
        self._cluster.up()
        self._note(f"node {leader} back")
        await_in_sync(self._cluster, self._topics.all, _IN_SYNC_TIMEOUT_S)
        self._note("all replicas in sync")

    def _kill_driver(self) -> None:
        repeated = self._queries.kill_mid_batch()
        self.driver_kills += 1
        self._note("kill -9 of the queries' driver" + (f" in batch {repeated.batch}" if repeated else ""))
        if repeated is not None:
            self.repeats.append(repeated)
        self._queries.start()
        self._note("the queries go on from their checkpoints")

    def _note(self, what: str) -> None:
        self.events.append({"at_us": time.time_ns() // 1000, "what": what})
        self._say(what)


def plan(duration_s: float, kill_every_s: float | None, kills_driver: bool) -> list[tuple[float, str]]:
    """When what is done, in the order of time; nothing after the stream's end."""
    deeds = [(duration_s / 2, "driver")] if kills_driver else []
    if kill_every_s is not None:
        count = int((duration_s - 1e-6) // kill_every_s)
        deeds += [(kill_every_s * n, "broker") for n in range(1, count + 1)]
    return sorted(deeds)
