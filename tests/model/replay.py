"""A counterexample of the model as a story of the simulator: the same steps, taken by whole nodes.

Nothing happens to the topic's compaction but what the trace says: no pass begins, and no report, bounds or order to
discard arrives. Raft goes on by itself, so a step of it is waited for. Only traces of two worlds are played: where the
trace has a log copied in part, or a row at one node only, the simulator has a story of its own (README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.compaction_bounds import CompactionBounds
from raft.types import ReplicaId
from tests.model.checker import Result
from tests.model.fences import Fence
from tests.model.state import State, Step
from tests.model.worlds import ADDED_AGAIN, MEMBERS
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import replaced

#: Virtual seconds within which a step that is possible is taken.
STEP_S = 5.0
#: Longer than the topic's delete.retention.ms.
EXPIRED_AFTER_S = 0.5
PLAYABLE = (MEMBERS, ADDED_AGAIN)


class Puppeteer:
    """Has nodes take the steps of a trace. `refused` are those that did not come about."""

    def __init__(self, stage: Stage, fence: Fence, start: State) -> None:
        self._stage = stage
        self._start = start
        self._topic = CompactedTopic(stage)
        #: By node of the model.
        self._nodes = self._topic.leader_and_followers()
        #: Who hears whom of what now: (action, receiver, sender), as nodes of the simulator.
        self._heard: set[tuple[str, int, int]] = set()
        self._was_added_again = fence.world is ADDED_AGAIN
        self._tombstone = -1
        self.refused: list[Step] = []

    def play(self, steps: list[Step]) -> None:
        stage, topic, nodes = self._stage, self._topic, self._nodes
        with ExitStack() as stack:
            held = stack.enter_context(topic.passes_held(*nodes))
            stack.enter_context(self._messages_held())
            self._write_records()
            for step in steps:
                take: Callable[[Step, dict[int, None]], bool] = getattr(self, f"_{step.action}")
                if not take(step, held):
                    self.refused.append(step)
        # The trace is over: everything goes on by itself.
        missing = [node for node in nodes if not stage.cluster.is_alive(node)]
        if missing:
            stage.start(*missing)
        topic.reassign(*nodes)

    def _write_records(self) -> None:
        stage, topic, (_, b, _) = self._stage, self._topic, self._nodes
        topic.put(b"old")
        stage.everybody_has_all()
        is_behind = not self._start.replicas[1].holds_guard
        if is_behind:
            stage.cluster.kill(b)
        self._tombstone = topic.put(None)
        if not is_behind:
            stage.everybody_has_all()
        if self._was_added_again:
            if not is_behind:
                stage.cluster.kill(b)
            topic.reassign(*(node for node in self._nodes if node != b))

    @contextmanager
    def _messages_held(self) -> Iterator[None]:
        def may_pass(action: str, replica: Replica, sender: ReplicaId) -> bool:
            receiver = replica.group.self_id.node_id
            return replica.topic != self._stage.topic or (action, receiver, sender.node_id) in self._heard

        def reported(original: Callable[..., None]) -> Any:
            def called(self: BoundsExchange, replica: Replica, member: ReplicaId, *args: Any) -> None:
                if may_pass("report", replica, member):
                    original(self, replica, member, *args)

            return called

        def received(original: Callable[..., bool]) -> Any:
            def called(self: CompactionBounds, leader: ReplicaId, *args: Any) -> bool:
                return may_pass("tell", self._replica, leader) and original(self, leader, *args)

            return called

        def ordered(original: Callable[..., None]) -> Any:
            def called(self: Replicas, replica: Replica, leader: ReplicaId, *args: Any) -> None:
                if may_pass("discard", replica, leader):
                    original(self, replica, leader, *args)

            return called

        with (
            replaced(BoundsExchange, "reported", reported),
            replaced(CompactionBounds, "bounds_received", received),
            replaced(Replicas, "discard_ordered", ordered),
        ):
            yield

    # -- steps: each returns whether it came about

    def _wait(self, condition: Callable[[], bool]) -> bool:
        return self._stage.waited(condition, STEP_S)

    def _node(self, node: int | None) -> int:
        assert node is not None
        return self._nodes[node]

    def _clean(self, step: Step, held: dict[int, None]) -> bool:
        node = self._node(step.node)
        del held[node]
        is_taken = self._wait(partial(self._topic.is_cleaned, node, above=self._tombstone))
        held[node] = None
        return is_taken

    def _drop(self, step: Step, held: dict[int, None]) -> bool:
        """The tombstone has expired. A pass is due only if there is something for it to do: another record."""
        node = self._node(step.node)
        self._stage.run_for(EXPIRED_AFTER_S)
        self._topic.put(b"later", key=b"another")
        del held[node]
        is_taken = self._wait(lambda: not self._topic.holds(node, self._tombstone))
        held[node] = None
        return is_taken

    def _report(self, step: Step, held: dict[int, None]) -> bool:
        node, leader = self._node(step.node), self._node(step.other)
        bounds, member = self._stage.replica(leader).bounds, self._stage.replica(node).group.self_id
        self._heard.add(("report", leader, node))
        is_taken = self._wait(lambda: bounds.report_of(member) == self._stage.replica(node).bounds.report())
        self._heard.discard(("report", leader, node))
        return is_taken

    def _tell(self, step: Step, held: dict[int, None]) -> bool:
        leader, node = self._node(step.node), self._node(step.other)
        self._heard.add(("tell", node, leader))
        is_taken = self._wait(lambda: self._topic.bounds(node).mtro > self._tombstone)
        self._heard.discard(("tell", node, leader))
        return is_taken

    def _rise(self, step: Step, held: dict[int, None]) -> bool:
        return self._wait(lambda: self._topic.bounds(self._node(step.node)).mtro > self._tombstone)

    def _hear(self, step: Step, held: dict[int, None]) -> bool:
        node, leader = self._node(step.node), self._node(step.other)
        if not self._stage.cluster.is_alive(node):
            self._stage.start(node)

        def has_all() -> bool:
            replica = self._stage.cluster.replica(node, self._stage.topic)
            return replica is not None and replica.log.end_index == self._stage.replica(leader).log.end_index

        return self._wait(has_all)

    def _elect(self, step: Step, held: dict[int, None]) -> bool:
        self._stage.lead(self._node(step.node))
        return True

    def _add(self, step: Step, held: dict[int, None]) -> bool:
        """... and start it, if it is away."""
        node = self._node(step.other)
        self._stage.begin_reassigning(*self._nodes)
        group = self._stage.replica(self._node(step.node)).group

        def is_named() -> bool:
            return any(member.node_id == node for member in group.configuration.members)

        if not self._stage.cluster.is_alive(node):
            self._stage.start(node)
        return self._wait(is_named)

    def _promote(self, step: Step, held: dict[int, None]) -> bool:
        return self._wait(lambda: self._node(step.other) in self._topic.voters())


def story_of(fence: Fence, result: Result, refused: list[Step]) -> Callable[[Stage], None]:
    """As `Mutation.story`. The steps that did not come about are added to `refused`."""
    assert fence.world in PLAYABLE and result.start is not None
    start, steps = result.start, [step for step, _ in result.trace]

    def story(stage: Stage) -> None:
        puppeteer = Puppeteer(stage, fence, start)
        puppeteer.play(steps)
        refused.extend(puppeteer.refused)

    return story
