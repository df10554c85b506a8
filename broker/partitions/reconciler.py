"""From the current members to the target: each leader moves its group towards the members that the image names, and a
node whose log was discarded asks the controller to name its new identity (replication.md sections 4 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import structlog

from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.metadata.ids import METADATA_TOPIC_ID, NodeIdentity
from broker.metadata.records import PartitionAssignment
from broker.partitions.pin_limit import PinLimit
from broker.replication.events import ReplicaEvents
from broker.replication.heartbeat import Heartbeat
from broker.replication.reads import Reads
from broker.replication.replica import CAUGHT_UP_S, Replica
from broker.replication.replicas import Replicas
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol.controller.brokers import RenewedReplica, RenewReplicas
from protocol.controller.replicas import FinishReassignment, Voter
from protocol.controller.request import EmptyResult
from protocol.errors import KafkaError
from raft.reconcile import next_change
from raft.types import ReplicaId
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: How often leaders look for members that are away and keep others waiting.
_PIN_CHECK_S = 1.0


class Reconciler:
    """Compares the groups of this node with their targets, and does or asks for what is missing."""

    def __init__(
        self,
        me: NodeIdentity,
        quorum_voters: Sequence[int],
        metadata: MetadataService,
        replicas: Replicas,
        reads: Reads,
        heartbeat: Heartbeat,
        controller: ControllerClient,
        events: ReplicaEvents,
        pin_limit: PinLimit,
        ticks: Ticks,
    ) -> None:
        """`quorum_voters`: the nodes that are configured to hold the metadata."""
        self._me = me
        self._quorum_voters = quorum_voters
        self._metadata = metadata
        self._replicas = replicas
        self._reads = reads
        self._heartbeat = heartbeat
        self._controller = controller
        self._pin_limit = pin_limit
        #: Replicas here whose identity the target does not name yet, because their logs were discarded.
        self._stale_identities: dict[GroupKey, None] = {}
        self._is_renewing = False
        #: Groups to be compared with their targets. Invariant: a group led here that is not in it has the members that
        #: its target names. One that has left a member out stays in it.
        self._marked: dict[GroupKey, None] = {}
        #: Groups led here whose finished reassignment the controller is being told.
        self._reporting: dict[GroupKey, None] = {}
        events.role_changed.append(self._role_changed)
        ticks.every(SLOW_TICK_S, self._tick)
        ticks.every(_PIN_CHECK_S, self._mark_pinned)

    def _role_changed(self, replica: Replica) -> None:
        if replica.is_leader:
            self.mark_for_reconcile(replica.key)

    def _tick(self, now: float) -> None:
        self._reconcile_groups(now)
        self._renew_identities()

    # -- identities that the target does not name -----------------------------------------------------------

    def note_stale_identity(self, replica: Replica) -> None:
        """To be told of each replica whose target or identity has changed: if the target names this node with a stale
        identity, the controller is asked to change that."""
        if self._is_assigned(replica.key) and replica.group.self_id not in self._target(replica.key):
            self._stale_identities[replica.key] = None

    def _is_assigned(self, key: GroupKey) -> bool:
        return self._me.node_id in [replica.node_id for replica in self._target(key)]

    def _renew_identities(self) -> None:
        """Ask the controller to name the new incarnations of logs that were discarded here, until it does."""
        if not self._stale_identities or self._is_renewing:
            return
        renewed = []
        for key in list(self._stale_identities):
            replica = self._replicas.by_key.get(key)
            if replica is None or replica.group.self_id in self._target(key) or not self._is_assigned(key):
                del self._stale_identities[key]
            else:
                incarnation = replica.group.self_id.incarnation
                renewed.append(
                    RenewedReplica(topic_id=key.topic_id, partition=key.partition, incarnation=incarnation)
                )
        if not renewed:
            return
        self._is_renewing = True
        request = RenewReplicas(
            node_id=self._me.node_id, directory_id=self._me.directory_id, replicas=renewed
        )
        self._controller.call(request, self._renewal_answered)

    def _renewal_answered(self, result: EmptyResult | KafkaError) -> None:
        self._is_renewing = False
        if isinstance(result, KafkaError):
            logger.warning("new identities of replicas are not recorded yet", reason=str(result))

    # -- members ------------------------------------------------------------------------------------------

    def mark_for_reconcile(self, key: GroupKey) -> None:
        """The target, or who leads, has changed: the next tick compares."""
        self._marked[key] = None

    def _mark_pinned(self, now: float) -> None:
        if not self._pin_limit.is_on:
            return
        for key, replica in self._replicas.by_key.items():
            if replica.is_leader and self._pin_limit.is_exceeded(replica, now):
                self.mark_for_reconcile(key)

    def _reconcile_groups(self, now: float) -> None:
        """Each leader moves its group one step towards the target (raft.reconcile)."""
        for key in list(self._marked):
            replica = self._replicas.by_key.get(key)
            if replica is None or not replica.is_leader:
                del self._marked[key]
                continue
            if not replica.is_serving:
                continue
            target = self._target(key)
            wanted = self._pin_limit.without_absent(replica, target, now)
            group = replica.group
            agrees = set(group.configuration.voters) == set(wanted) and not group.configuration.learners
            if not target or (agrees and group.configuration_index < group.commit_end):
                if wanted == target and not self._report_finished(replica):
                    del self._marked[key]
            elif not agrees:
                self._change_members(replica, wanted, now)

    def _change_members(self, replica: Replica, target: Sequence[ReplicaId], now: float) -> None:
        group = replica.group
        change = next_change(
            group.configuration,
            target,
            lambda learner: (
                group.is_caught_up(learner, now, CAUGHT_UP_S) and replica.bounds.may_vote(learner)
            ),
            leader=group.self_id,
        )
        if change is None or not replica.driver.propose_configuration(change):
            return  # the next tick looks again
        logger.info("membership changes", topic=replica.topic, partition=replica.partition, to=str(change))
        self._heartbeat.configuration_changed(replica)

    def _report_finished(self, replica: Replica) -> bool:
        """The members are the target: have the controller record that, if a reassignment was under way. Returns False
        if none was."""
        topic = self._metadata.image.topics.get(replica.key.topic_id)
        if topic is None or not topic.partitions[replica.partition].is_reassigning:
            return False
        if replica.key not in self._reporting:
            self._reporting[replica.key] = None
            request = FinishReassignment(
                topic_id=topic.topic_id,
                partition=replica.partition,
                voters=[
                    Voter(node_id=node_id, directory_id=UUID(bytes=directory), incarnation=incarnation)
                    for node_id, directory, incarnation in replica.group.configuration.voters
                ],
                image_end=self._metadata.image.end_offset,
            )

            def confirmed(keys: set[GroupKey]) -> None:
                if replica.key in keys:
                    self._controller.call(request, partial(self._report_answered, replica.key))
                else:
                    del self._reporting[replica.key]

            # A stale leader does not know what its successor has changed since.
            self._reads.confirm([replica], confirmed)
        return True

    def _report_answered(self, key: GroupKey, result: EmptyResult | KafkaError) -> None:
        del self._reporting[key]
        if isinstance(result, KafkaError):
            logger.warning("a finished reassignment is not recorded yet", reason=str(result))

    # -- targets ------------------------------------------------------------------------------------------

    def _target(self, key: GroupKey) -> list[ReplicaId]:
        """The members that a group is to have; empty for a topic that is deleted."""
        if key.topic_id == METADATA_TOPIC_ID:
            return self._metadata_target()
        topic = self._metadata.image.topics.get(key.topic_id)
        return [] if topic is None else assigned_replicas(topic.partitions[key.partition])

    def _metadata_target(self) -> list[ReplicaId]:
        """The configured voters, each with the directory that it registered. A voter that is not registered, yet or any
        more, stays what it is."""
        replica = self._metadata.replica
        assert replica is not None
        current = {voter.node_id: voter for voter in replica.group.configuration.voters}
        target: list[ReplicaId] = []
        for node_id in self._quorum_voters:
            broker = self._metadata.image.brokers.get(node_id)
            if broker is not None:
                target.append(ReplicaId(node_id, broker.directory_id.bytes, broker.metadata_incarnation))
            elif node_id in current:
                target.append(current[node_id])
        return target


def assigned_replicas(assignment: PartitionAssignment) -> list[ReplicaId]:
    """As Raft names them; the preferred leader first."""
    return [
        ReplicaId(node_id, directory.bytes, incarnation)
        for node_id, directory, incarnation in assignment.identities
    ]
