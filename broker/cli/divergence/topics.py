"""The topics of the demonstration, all with the same replicas: their creation, who leads them, who has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from broker.cli.clients import admin_client, refusal
from broker.cli.cluster_leaders import elect_preferred
from broker.cli.cluster_state import ClusterState, describe_cluster
from broker.cli.divergence.table import LIMIT_S, SETTINGS
from broker.cli.moves import alter_reassignments
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.wire_client import ask_at
from protocol.errors import ProtocolError
from protocol.messages.elect_leaders import TopicPartitions
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_POLL_S = 0.05
_METADATA_VERSION = 8
#: A broker that hangs is asked no longer than this.
_ANSWER_S = 1.0
#: An election that found nobody to elect is asked for again after this.
_ELECTION_S = 1.0


class Topics:
    """Methods that wait raise CommandError after LIMIT_S."""

    def __init__(self, bootstrap_server: str, names: Sequence[str]) -> None:
        self._bootstrap_server = bootstrap_server
        self._names = list(names)
        self._admin = admin_client(bootstrap_server)
        self._addresses: dict[int, tuple[str, int]] = {}
        #: Brokers that are away. Nobody asks them.
        self.away: set[int] = set()

    def cluster(self) -> ClusterState:
        return describe_cluster(self._bootstrap_server)

    def create(self, replicas: Sequence[int]) -> None:
        """`replicas`: node ids, the preferred leader first."""
        new = [
            NewTopic(name, 1, replica_assignment=[list(replicas)], config=SETTINGS) for name in self._names
        ]
        self._wait_for(self._admin.create_topics(new, request_timeout=TIMEOUT_S))
        self._addresses = self.cluster().brokers

    def delete(self) -> None:
        """What is there of them."""
        deleted = self._admin.delete_topics(self._names, request_timeout=TIMEOUT_S)
        self._wait_for(deleted, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _wait_for(self, futures: Mapping[str, Future[None]], ignored: int = KafkaError.NO_ERROR) -> None:
        for future in futures.values():
            try:
                future.result(LIMIT_S)
            except KafkaException as failure:
                if failure.args[0].code() != ignored:
                    raise refusal(failure.args[0], self._bootstrap_server) from None

    # -- leaders and replicas

    def leaders(self) -> dict[str, int]:
        """Of each topic that has one. A leader counts if it says so itself."""
        return {name: node_id for node_id, name, _, _ in self._led()}

    def _led(self) -> list[tuple[int, str, list[int], list[int]]]:
        """Leader, topic, replicas, those in sync: by the leaders themselves. Others may know less."""
        question = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in self._names], allow_auto_topic_creation=False
        )
        found = []
        for node_id, (host, port) in self._addresses.items():
            if node_id in self.away:
                continue
            try:
                answer = ask_at(host, port, question, _METADATA_VERSION, MetadataResponse, _ANSWER_S)
            except (OSError, ProtocolError):
                continue  # it is starting, or stopping
            found += [
                (node_id, topic.name or "", partition.replica_nodes, partition.isr_nodes)
                for topic in answer.topics
                for partition in topic.partitions
                if partition.leader_id == node_id
            ]
        return found

    def wait_led(self) -> None:
        """Until every topic has a leader among those that are there."""
        _wait(lambda: self.leaders().keys() == set(self._names), "every topic has a leader")

    def wait_in_sync(self, replicas: Collection[int]) -> None:
        """Until these, and nobody else, are replicas of every topic, and have caught up."""
        expected = set(replicas)

        def are_in_sync() -> bool:
            in_sync = {name for _, name, all_of, isr in self._led() if set(all_of) == set(isr) == expected}
            return in_sync == set(self._names)

        _wait(are_in_sync, f"the replicas {sorted(expected)} are in sync")

    def reassign(self, replicas: Sequence[int]) -> None:
        """Have the topics on these nodes, the preferred leader first. It is begun when this returns."""
        refused = alter_reassignments(
            self._bootstrap_server, {(name, 0): list(replicas) for name in self._names}
        )
        if refused:
            raise CommandError(
                f"the reassignment to {list(replicas)} is refused: {next(iter(refused.values()))}"
            )

    def lead(self, node_id: int, replicas: Sequence[int]) -> None:
        """Make one of the replicas the leader of all topics."""
        self.reassign([node_id, *(each for each in replicas if each != node_id)])
        next_election_at = 0.0

        def leads() -> bool:
            nonlocal next_election_at
            if time.monotonic() >= next_election_at:
                # confluent-kafka 2.x waits for a minute, and its `operation_timeout` raises SystemError.
                wanted = [TopicPartitions(topic=name, partitions=[0]) for name in self._names]
                elect_preferred(self._bootstrap_server, wanted, _ELECTION_S)
                next_election_at = time.monotonic() + _ELECTION_S
            return self.leaders() == dict.fromkeys(self._names, node_id)

        _wait(leads, f"node {node_id} leads every topic")


def _wait(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        if time.monotonic() > deadline:
            raise CommandError(f"waited {LIMIT_S:.0f} s until {what}")
        time.sleep(_POLL_S)
