"""The requests of `varve group`, sent by the client library's admin client. Errors are raised as `CommandError`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from broker.cli.clients import refusal
from broker.cli.group_offsets import Bounds, Partition, Scope, Target
from broker.cli.root import TIMEOUT_S, CommandError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

T = TypeVar("T")

#: Kafka's names of the states that the client library calls otherwise.
_STATES = {"PREPARING_REBALANCING": "PreparingRebalance", "COMPLETING_REBALANCING": "CompletingRebalance"}


class Group(TypedDict):
    """The description of a group in JSON."""

    group: str
    state: str
    type: str
    assignment_strategy: str
    coordinator: dict[str, Any]
    members: list[dict[str, Any]]


class GroupAdmin:
    """Requests about groups. Each method waits for the answer."""

    def __init__(self, admin: AdminClient, bootstrap_server: str) -> None:
        self._admin = admin  # Kept, because pending requests end with it.
        self._bootstrap_server = bootstrap_server

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except KafkaException as failure:
            raise refusal(failure.args[0], self._bootstrap_server) from None

    # -- groups ------------------------------------------------------------------------------------------

    def list_groups(
        self, states: list[str] | None = None, types: list[str] | None = None
    ) -> list[dict[str, str]]:
        """The name, state and type of each group, sorted by name. `states` and `types` are not case-sensitive."""
        result = self._result(self._admin.list_consumer_groups(request_timeout=TIMEOUT_S))
        for failure in result.errors or ():
            # The library documents exceptions, and returns errors.
            error = failure.args[0] if isinstance(failure, KafkaException) else failure
            raise refusal(error, self._bootstrap_server)
        rows = [
            {"group": found.group_id, "state": _state(found.state), "type": found.type.name.capitalize()}
            for found in result.valid or ()
        ]
        for key, wanted in (("state", states), ("type", types)):
            folded = {name.lower() for name in wanted or ()}
            rows = [row for row in rows if not folded or row[key].lower() in folded]
        return sorted(rows, key=lambda row: row["group"])

    def describe(self, names: list[str], *, may_be_missing: bool = False) -> list[Group]:
        """Raises CommandError if a group does not exist and `may_be_missing` is false."""
        if not names:
            return []
        futures = self._admin.describe_consumer_groups(names, request_timeout=TIMEOUT_S)
        groups = [_described(self._result(futures[name])) for name in names]
        if not may_be_missing:
            for found in groups:
                if found["state"] == "Dead":
                    raise CommandError(f"Consumer group '{found['group']}' does not exist")
        return groups

    def delete(self, names: list[str]) -> dict[str, str]:
        """Returns the errors of the groups that are not deleted."""
        refused = {}
        if names:
            futures = self._admin.delete_consumer_groups(names, request_timeout=TIMEOUT_S)
            for name in names:
                try:
                    self._result(futures[name])
                except CommandError as error:
                    refused[name] = error.format_message()
        return refused

    # -- offsets -----------------------------------------------------------------------------------------

    def describe_offsets(self, found: Group) -> list[dict[str, Any]]:
        """A row for each partition that the group has an offset for, or that is assigned to a member."""
        committed = self._committed(found["group"])
        owners = {
            (topic, number): member
            for member in found["members"]
            for topic, numbers in member["assignment"].items()
            for number in numbers
        }
        partitions = sorted(committed.keys() | owners.keys())
        ends = self._list_offsets(partitions, OffsetSpec.latest())
        rows = []
        for partition in partitions:
            end, owner = ends.get(partition), owners.get(partition, {})
            at = committed.get(partition)
            current = None if at is None else at.offset
            rows.append(
                {
                    "group": found["group"],
                    "topic": partition[0],
                    "partition": partition[1],
                    "leader_epoch": None if at is None else at.leader_epoch,
                    "current_offset": current,
                    "log_end_offset": end,
                    "lag": None if current is None or end is None else end - current,
                    "consumer_id": owner.get("consumer_id"),
                    "host": owner.get("host"),
                    "client_id": owner.get("client_id"),
                }
            )
        return rows

    def resolve_offsets(self, name: str, scope: Scope, target: Target) -> dict[Partition, int]:
        """The new offset of each partition of the scope."""
        committed = self._committed(name)
        partitions = sorted(committed) if scope.all_topics else self._partitions(scope.topics)
        starts = self._list_offsets(partitions, OffsetSpec.earliest())
        ends = self._list_offsets(partitions, OffsetSpec.latest())
        at_time: dict[Partition, int] = {}
        if target.timestamp_ms is not None:
            found = self._list_offsets(partitions, OffsetSpec.for_timestamp(max(target.timestamp_ms, 0)))
            at_time = {partition: offset for partition, offset in found.items() if offset >= 0}
        resolved = {}
        for partition in partitions:
            if partition not in starts or partition not in ends:
                continue  # The topic was deleted. The group's offsets will be deleted soon.
            current = committed[partition].offset if partition in committed else None
            bounds = Bounds(starts[partition], ends[partition])
            resolved[partition] = target.offset(partition, bounds, current, at_time.get(partition))
        return resolved

    def committed_offsets(self, name: str) -> dict[Partition, int]:
        return {partition: found.offset for partition, found in self._committed(name).items()}

    def commit_offsets(self, name: str, offsets: Mapping[Partition, int]) -> None:
        if not offsets:
            return
        wanted = ConsumerGroupTopicPartitions(
            name, [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        )
        futures = self._admin.alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
        for answered in self._result(futures[name]).topic_partitions:
            if answered.error is not None:
                raise refusal(answered.error, self._bootstrap_server)

    def _committed(self, name: str) -> dict[Partition, TopicPartition]:
        asked = [ConsumerGroupTopicPartitions(name)]
        futures = self._admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)
        found = self._result(futures[name]).topic_partitions
        return {(each.topic, each.partition): each for each in found if each.offset >= 0}

    def _partitions(self, topics: Mapping[str, frozenset[int] | None]) -> list[Partition]:
        """Raises CommandError if a topic or partition does not exist."""
        try:
            known = self._admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as failure:
            raise refusal(failure.args[0], self._bootstrap_server) from None
        partitions = []
        for topic, numbers in topics.items():
            if topic not in known:
                raise CommandError(f"Topic '{topic}' does not exist")
            there = known[topic].partitions
            missing = sorted((numbers or frozenset()) - set(there))
            if missing:
                raise CommandError(f"Topic '{topic}' has no partition {missing[0]}; it has {len(there)}")
            partitions += [(topic, number) for number in sorted(there if numbers is None else numbers)]
        return partitions

    def _list_offsets(self, partitions: list[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        """Partitions of topics that do not exist any more are left out."""
        if not partitions:
            return {}
        asked = {TopicPartition(*partition): spec for partition in partitions}
        offsets = {}
        for key, future in self._admin.list_offsets(asked, request_timeout=TIMEOUT_S).items():
            try:
                offsets[key.topic, key.partition] = future.result().offset
            except KafkaException as failure:
                if failure.args[0].code() not in (
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                    KafkaError._UNKNOWN_TOPIC,
                ):
                    raise refusal(failure.args[0], self._bootstrap_server) from None
        return offsets


def _described(found: ConsumerGroupDescription) -> Group:
    coordinator = found.coordinator
    return {
        "group": found.group_id,
        "state": _state(found.state),
        "type": found.type.name.capitalize(),
        "assignment_strategy": found.partition_assignor,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "members": [
            {
                "consumer_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": _by_topic(member.assignment.topic_partitions),
            }
            for member in sorted(found.members, key=lambda member: member.member_id)
        ],
    }


def _by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions, key=lambda each: (each.topic, each.partition)):
        topics.setdefault(each.topic, []).append(each.partition)
    return topics


def _state(state: Any) -> str:
    return _STATES.get(state.name) or str(state.name).capitalize()
