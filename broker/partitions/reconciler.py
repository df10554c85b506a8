"""From the fact to the wish: each leader moves its group towards the members that the image wishes for, and a node
whose log was discarded asks the controller to wish for who it is now (replication.md sections 4 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import structlog

from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.metadata.ids import METADATA_TOPIC_ID, NodeIdentity
from broker.metadata.records import PartitionAssignment
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
from raft.types import ProposalRefusedError, ReplicaId
from storage.log_types import GroupKey

logger = structlog.get_logger()


class Reconciler:
    """Compares the groups of this node with the wish, and does or asks for what is missing."""

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
        #: Replicas here whose identity the wish does not name yet: their logs were discarded.
        self._unwished: dict[GroupKey, None] = {}
        self._is_renewing = False
        #: Groups whose fact may differ from the wish. Invariant: a group led here that is not in it agrees.
        self._unsettled: dict[GroupKey, None] = {}
        #: Groups led here whose finished reassignment the controller is being told.
        self._reporting: dict[GroupKey, None] = {}
        events.role_changed.append(self._role_changed)
        ticks.every(SLOW_TICK_S, self._tick)

    def _role_changed(self, replica: Replica) -> None:
        if replica.is_leader:
            self.unsettle(replica.key)

    def _tick(self, now: float) -> None:
        self._reconcile(now)
        self._renew()

    # -- replicas that were discarded ---------------------------------------------------------------------

    def note_unwished(self, replica: Replica) -> None:
        """The node is wished for, and not with the identity that it has."""
        if self._is_wished(replica.key) and replica.group.self_id not in self._wish(replica.key):
            self._unwished[replica.key] = None

    def _is_wished(self, key: GroupKey) -> bool:
        return self._me.node_id in [replica.node_id for replica in self._wish(key)]

    def _renew(self) -> None:
        """Ask the controller to wish for the new incarnations of logs that were discarded here, until it does."""
        if not self._unwished or self._is_renewing:
            return
        replicas = []
        for key in list(self._unwished):
            replica = self._replicas.by_key.get(key)
            if replica is None or replica.group.self_id in self._wish(key) or not self._is_wished(key):
                del self._unwished[key]
            else:
                replicas.append(
                    RenewedReplica(
                        topic_id=key.topic_id,
                        partition=key.partition,
                        incarnation=replica.group.self_id.incarnation,
                    )
                )
        if not replicas:
            return
        self._is_renewing = True
        request = RenewReplicas(
            node_id=self._me.node_id, directory_id=self._me.directory_id, replicas=replicas
        )
        self._controller.call(request, self._renewed)

    def _renewed(self, result: EmptyResult | KafkaError) -> None:
        self._is_renewing = False
        if isinstance(result, KafkaError):
            logger.warning("replicas are not wished for yet", reason=str(result))

    # -- fact to wish ------------------------------------------------------------------------------------

    def unsettle(self, key: GroupKey) -> None:
        """The wish, or who leads, has changed: look at the group with the next tick."""
        self._unsettled[key] = None

    def _reconcile(self, now: float) -> None:
        """Each leader moves its group one step towards what metadata wishes (raft.reconcile)."""
        for key in list(self._unsettled):
            replica = self._replicas.by_key.get(key)
            if replica is None or not replica.is_leader:
                del self._unsettled[key]
                continue
            if not replica.is_serving:
                continue
            wish = self._wish(key)
            group = replica.group
            is_settled = set(group.configuration.voters) == set(wish) and not group.configuration.learners
            if not wish or (is_settled and group.configuration_index < group.commit_end):
                if not self._report_finished(replica):
                    del self._unsettled[key]
                continue
            if is_settled:
                continue
            change = next_change(
                group.configuration,
                wish,
                lambda learner, group=group: group.is_caught_up(learner, now, CAUGHT_UP_S),  # type: ignore[misc]
                leader=group.self_id,
            )
            if change is None or not replica.may_become(change):
                continue
            # What is staged was accepted before the row, and nothing may follow a row that is not durable.
            replica.settle_pending()
            try:
                out = group.propose_configuration(change, now)
            except ProposalRefusedError:
                continue  # the change before is not committed yet: the next tick looks again
            logger.info(
                "membership changes", topic=replica.topic, partition=replica.partition, to=str(change)
            )
            replica.apply(out)
            self._heartbeat.configuration_changed(replica)

    def _report_finished(self, replica: Replica) -> bool:
        """The fact is the wish: have the controller record it where something was to go. False: nothing was."""
        topic = self._metadata.image.topics.get(replica.key.topic_id)
        if topic is None or topic.partitions[replica.partition].is_settled:
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
                    done = partial(self._reported, replica.key)
                    self._controller.call(request, done)
                else:
                    del self._reporting[replica.key]

            # A leader of yesterday does not know what its successor has made of the wish since.
            self._reads.confirm([replica], confirmed)
        return True

    def _reported(self, key: GroupKey, result: EmptyResult | KafkaError) -> None:
        del self._reporting[key]
        if isinstance(result, KafkaError):
            logger.warning("a reassignment is not recorded yet", reason=str(result))

    def _wish(self, key: GroupKey) -> list[ReplicaId]:
        if key.topic_id == METADATA_TOPIC_ID:
            return self._metadata_wish()
        topic = self._metadata.image.topics.get(key.topic_id)
        return [] if topic is None else _identities(topic.partitions[key.partition])

    def _metadata_wish(self) -> list[ReplicaId]:
        """The configured voters, each with the directory that it registered. Who is not registered, yet or any more,
        stays what it is."""
        replica = self._metadata.replica
        assert replica is not None
        fact = {voter.node_id: voter for voter in replica.group.configuration.voters}
        wish: list[ReplicaId] = []
        for node_id in self._quorum_voters:
            broker = self._metadata.image.brokers.get(node_id)
            if broker is not None:
                wish.append(ReplicaId(node_id, broker.directory_id.bytes, broker.metadata_incarnation))
            elif node_id in fact:
                wish.append(fact[node_id])
        return wish


def _identities(assignment: PartitionAssignment) -> list[ReplicaId]:
    return [
        ReplicaId(node_id, directory.bytes, incarnation)
        for node_id, directory, incarnation in assignment.identities
    ]
