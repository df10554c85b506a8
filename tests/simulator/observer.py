"""Who looks on at one life of a node (`broker.replication.events.Observer`), and tells the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.image import Change, TopicChanged, TopicCreated, TopicDeleted
from broker.node import Node
from broker.replication.events import Directory
from broker.replication.replica import Replica
from protocol import peer
from raft.types import ReplicaId
from storage.log_types import GroupKey
from tests.simulator.invariants.bounds_never_fall import NAMES as BOUND_NAMES
from tests.simulator.invariants.replicas_say_the_same import report_difference
from tests.simulator.process import looking_on

if TYPE_CHECKING:
    from tests.simulator.damage import Damage
    from tests.simulator.oracle import Oracle


class NodeObserver:
    """Set `node` once it is made: it is assembled later."""

    node: Node

    def __init__(self, oracle: Oracle, damage: Damage) -> None:
        self._oracle = oracle
        self._damage = damage

    def role_changed(self, replica: Replica) -> None:
        with looking_on():
            self._oracle.role_changed(replica)

    def commit_advanced(self, replica: Replica) -> None:
        with looking_on():
            self._damage.committed(replica)
            self._oracle.committed(self.node.config.node_id, replica)

    def truncating(self, replica: Replica, to_index: int) -> None:
        self._oracle.nodes.truncating(replica, to_index)

    def replicas_differ(self, replica: Replica, node_id: int, offsets: tuple[int, int]) -> None:
        report_difference(replica, node_id, offsets)

    def sending(self, to: Directory, message: peer.PeerMessage) -> None:
        """Somebody is being told this."""
        by_key = self.node.replicas.by_key
        own = (self.node.me.node_id, self.node.me.directory_id.bytes)
        if isinstance(message, peer.BoundsReports):
            for report in message.groups:
                key = GroupKey(report.topic_id, report.partition)
                identity = ReplicaId(*own, report.incarnation)
                values = {name: getattr(report, name) for name in BOUND_NAMES}
                self._oracle.compaction.told.told(key, identity, **values)
            return
        if isinstance(message, peer.BoundsUpdates):
            for update in message.groups:
                key = GroupKey(update.topic_id, update.partition)
                identity = ReplicaId(*own, update.incarnation)
                self._oracle.compaction.told.told(key, identity, mtro=update.mtro, mxro=update.mxro)
                if update.must_discard:
                    # What that one holds is from a membership that is over. It is to begin anew, with another identity.
                    self._oracle.nodes.given_up(to[0], key)
            return
        if isinstance(message, peer.LogStartUpdates | peer.LogStartAcks):
            for group in message.groups:
                replica = by_key[GroupKey(group.topic_id, group.partition)]
                self._oracle.nodes.log_starts.check(replica)
                if isinstance(group, peer.LogStartAck):
                    self._oracle.nodes.sent(own, to, group, replica)
            return
        key = GroupKey(message.topic_id, message.partition)  # type: ignore[attr-defined]
        self._oracle.nodes.sent(own, to, message, by_key.get(key))

    def image_changed(self, change: Change) -> None:
        """A node that is neither assigned nor needed any more gives its replica up, after this; so does every node that
        hears of a deletion, while a leader that has not heard may still count what it had acknowledged."""
        node_id = self.node.config.node_id
        if isinstance(change, TopicCreated | TopicChanged) and "compact" in change.new.configs.get(
            "cleanup.policy", ""
        ):
            for number in range(len(change.new.partitions)):
                self._oracle.compaction.begins(GroupKey(change.new.topic_id, number))
        if isinstance(change, TopicDeleted):
            for number in range(len(change.old.partitions)):
                self._give_up(GroupKey(change.old.topic_id, number))
        if isinstance(change, TopicChanged):
            # Partitions that were added had no replica to give up.
            for number, (old, new) in enumerate(
                zip(change.old.partitions, change.new.partitions, strict=False)
            ):
                key = GroupKey(change.new.topic_id, number)
                for removed in set(old.holders) - set(new.holders):
                    self._oracle.given_up(removed, key, self.node.metadata.image.end_offset)
                    if removed == node_id and self.node.publisher.has_begun:
                        # A node that was behind has opened, a moment ago, what others knew to be over.
                        self._give_up(key)

    def _give_up(self, key: GroupKey) -> None:
        replica = self.node.replicas.by_key.get(key)
        if replica is None:
            self._oracle.nodes.given_up(self.node.config.node_id, key)
        else:
            self._oracle.nodes.gives_up(replica)
