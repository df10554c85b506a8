"""`__cluster_metadata` at work: the image that everybody reads, and the controller while this node leads.

The image is a replay of committed records only. While this node leads, the controller decides against an image of its
own, which replays records at append; an answer leaves when the log end that it saw is committed (replication.md
section 9). Losing leadership throws that image away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID

import structlog

from broker import quorum
from broker.config.resources import Resources
from broker.controller_client import Done, Result, error
from broker.metadata.alterations import ConfigAlteration
from broker.metadata.controller import Controller, ControllerConfig
from broker.metadata.image import Change, MetadataImage
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.records import BrokerRecord, Endpoint, KeyValue, ReplicaIdentity
from broker.metadata.requests import (
    Decision,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaRenewal,
    TopicResult,
)
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records
from storage.errors import CorruptLogError
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: A range to a follower holds a batch of this size, and a fetch by default.
MAX_BATCH_BYTES = 1 << 20


class MetadataHost(Protocol):
    @property
    def reads(self) -> Reads: ...
    def is_alive(self, broker: BrokerRecord) -> bool: ...
    def now_ms(self) -> int: ...
    def image_changed(self, change: Change) -> None:
        """A committed change, in log order."""

    def image_read(self) -> None:
        """Everything committed is replayed; called after each step of the image."""

    @property
    def resources(self) -> Resources: ...


class _Answers:
    """Acknowledgement of decisions: one waiter per appended decision."""

    def __init__(self, answer: Callable[[ErrorCode], None]) -> None:
        self._answer = answer

    def partition_done(self, slot: int, error_code: ErrorCode) -> None:
        self._answer(error_code)


class MetadataService:
    """Follows the metadata replica. `attach` it once the replica exists."""

    def __init__(self, host: MetadataHost, config: ControllerConfig, rng: random.Random) -> None:
        self._host = host
        self._config = config
        self._rng = rng
        self.image = MetadataImage()
        self.replica: Replica | None = None
        #: Set while this node leads and serves, and `_ahead` agrees with the log's end.
        self._controller: Controller | None = None
        #: The controller's image: committed or not, everything that it has decided.
        self._ahead = MetadataImage()

    def attach(self, replica: Replica) -> None:
        assert self.replica is None
        self.replica = replica

    # -- the image ---------------------------------------------------------------------------------------

    def commit_moved(self) -> None:
        """Replay what is newly committed."""
        replica = self.replica
        assert replica is not None
        try:
            has_moved = _replay(replica, self.image, replica.high_watermark, self._host.image_changed)
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
            return
        if has_moved:
            self._host.image_read()

    # -- the controller ----------------------------------------------------------------------------------

    def role_changed(self) -> None:
        replica = self.replica
        assert replica is not None
        if replica.is_serving and self._controller is None:
            self._ahead = MetadataImage()
            try:
                _replay(replica, self._ahead, replica.log.end_offset, lambda change: None)
            except CorruptLogError as error:
                replica.host.log_corrupt(replica, error)
                return
            self._controller = Controller(
                self._ahead,
                self._config,
                self._rng,
                is_alive=self._host.is_alive,
                resources=self._host.resources,
            )
            logger.info("this node is the controller", epoch=replica.leader_epoch)
        elif not replica.is_serving and self._controller is not None:
            self._controller = None
            logger.info("this node is the controller no longer", epoch=replica.leader_epoch)

    def execute(self, operation: str, arguments: dict[str, Any], done: Done) -> None:
        """Decide, append, answer when committed."""
        if self.replica is not None:
            self.role_changed()  # after a refused write the image ahead is to be read anew
        controller = self._controller
        if controller is None:
            done(error(ErrorCode.NOT_CONTROLLER, "this node is not the controller"))
            return
        if operation not in _OPERATIONS:
            done(error(ErrorCode.UNSUPPORTED_VERSION, f"this controller cannot {operation}"))
            return
        try:
            decision, result = _OPERATIONS[operation](self, controller, arguments)
            end_offset = self._append(decision)
        except KafkaError as refused:
            done(error(refused.code, refused.message or refused.code.name))
            return

        def answer(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                done({**result, "image_end": end_offset})
            elif code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._controller = None  # what it decided is in its image, and not in the log
                done(error(code, "the controller's disk is full"))
            else:
                done(error(ErrorCode.NOT_CONTROLLER, "the controller has changed"))

        if decision.records:
            self._when_committed(end_offset, answer)
        else:
            self._when_confirmed(end_offset, answer)

    def _when_committed(self, end_offset: int, answer: Callable[[ErrorCode], None]) -> None:
        assert self.replica is not None
        self.replica.wait_committed(end_offset, _Answers(answer), 0)

    def _when_confirmed(self, end_offset: int, answer: Callable[[ErrorCode], None]) -> None:
        """For an answer without records: a controller that was deposed and does not know it commits nothing, but it
        could still say what is there and what is not, as of yesterday. So it waits for a liveness round."""
        replica = self.replica
        assert replica is not None
        epoch = replica.leader_epoch

        def confirmed(keys: set[GroupKey]) -> None:
            if replica.key in keys and replica.leader_epoch == epoch:
                self._when_committed(end_offset, answer)
            else:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._host.reads.confirm([replica], confirmed)

    def _append(self, decision: Decision[Any]) -> int:
        """Append the decision's records and replay them into the controller's image. Returns the log end they need.

        Raises KafkaError(NOT_CONTROLLER) while the log takes no records: a hand-over, a row that is not durable.
        """
        replica = self.replica
        assert replica is not None
        if not decision.records:
            return replica.next_offset
        end_offset = replica.next_offset
        for records in _in_batches(decision.records):
            batch = build_batch([NewRecord(key, value, self._host.now_ms()) for key, value in records])
            header = next(iter_batches(memoryview(batch)))[1]
            try:
                base_offset, end_offset = replica.append(header, batch)
            except KafkaError as refused:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is changing") from refused
            for position, (key, value) in enumerate(records):
                self._ahead.replay(key, value, base_offset + position, replica.leader_epoch)
        return end_offset

    # -- operations: (service, controller, JSON arguments) -> (decision, JSON answer) ---------------------

    def _register_broker(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        endpoints = {name: Endpoint(host, port) for name, (host, port) in arguments["endpoints"].items()}
        broker = BrokerRecord(
            node_id=arguments["node_id"],
            directory_id=UUID(arguments["directory_id"]),
            boot_id=UUID(arguments["boot_id"]),
            endpoints=endpoints,
            peer=Endpoint(*arguments["peer"]),
            metadata_incarnation=arguments["metadata_incarnation"],
        )
        named = controller.name_cluster(arguments["cluster_id"])
        if named.records:
            self._append(named)
        return controller.register_broker(broker), {"error_code": 0}

    def _unregister_broker(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        return controller.unregister_broker(arguments["node_id"]), {"error_code": 0}

    def _describe_quorum(self, _: Controller, arguments: dict[str, Any]) -> tuple[Decision[Any], Result]:
        assert self.replica is not None
        return Decision((), None), {"error_code": 0, **quorum.describe(self.replica, self._ahead)}

    def _renew_replicas(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        renewals = [ReplicaRenewal(UUID(topic), *rest) for topic, *rest in arguments["replicas"]]
        directory_id = UUID(arguments["directory_id"])
        return controller.renew_replicas(arguments["node_id"], directory_id, renewals), {"error_code": 0}

    def _reassign_partitions(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        """[topic, partition, node ids or null] each, in `partitions`; in the answer error code and message instead of
        the nodes."""
        wanted = [
            Reassignment(topic, partition, None if replicas is None else tuple(replicas))
            for topic, partition, replicas in arguments["partitions"]
        ]
        may_change_count = arguments["may_change_count"]
        decision = controller.reassign_partitions(wanted, may_change_count=may_change_count)
        results = [(x.topic, x.partition, int(x.error), x.message) for x in decision.response]
        return decision, {"error_code": 0, "partitions": results}

    def _list_reassignments(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        decision = controller.ongoing_reassignments()
        rows = [(x.topic, x.partition, x.replicas, x.adding, x.removing) for x in decision.response]
        return decision, {"error_code": 0, "partitions": rows}

    def _finish_reassignment(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        voters = [
            ReplicaIdentity(node_id, UUID(directory), life)
            for node_id, directory, life in arguments["voters"]
        ]
        topic_id = UUID(arguments["topic_id"])
        return controller.finish_reassignment(topic_id, arguments["partition"], voters), {"error_code": 0}

    def _create_topics(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        topics = [
            NewTopic(
                topic["name"],
                topic["num_partitions"],
                topic["replication_factor"],
                tuple((partition, tuple(replicas)) for partition, replicas in topic["assignments"]),
                dict(topic["configs"]),
            )
            for topic in arguments["topics"]
        ]
        decision = controller.create_topics(
            topics,
            validate_only=arguments["validate_only"],
            is_internal=arguments.get("is_internal", False),
        )
        return decision, {"error_code": 0, "topics": [self._topic_json(topic) for topic in decision.response]}

    def _auto_create(self, controller: Controller, arguments: dict[str, Any]) -> tuple[Decision[Any], Result]:
        decision = controller.auto_create(arguments["names"])
        return decision, {"error_code": 0, "topics": [self._topic_json(topic) for topic in decision.response]}

    def _delete_topics(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        references = [UUID(topic_id) if topic_id else name for name, topic_id in arguments["topics"]]
        decision = controller.delete_topics(references)
        return decision, {"error_code": 0, "topics": [self._topic_json(topic) for topic in decision.response]}

    def _create_partitions(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        """[topic, count, node ids of each new partition or None] each, in `topics`."""
        wanted = [
            NewPartitions(
                name, count, None if assignments is None else tuple(tuple(nodes) for nodes in assignments)
            )
            for name, count, assignments in arguments["topics"]
        ]
        decision = controller.create_partitions(wanted, validate_only=arguments["validate_only"])
        results = [(x.name, int(x.error), x.message) for x in decision.response]
        return decision, {"error_code": 0, "topics": results}

    def _alter_configs(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        """[kind, name, [setting, operation, value] each] each, in `resources`; in the answer error code and message
        of each, in the same order."""
        wanted = [
            ConfigAlteration(
                kind,
                name,
                tuple((key, how, value) for key, how, value in operations),
                arguments["replaces_all"],
            )
            for kind, name, operations in arguments["resources"]
        ]
        decision = controller.alter_configs(wanted, validate_only=arguments["validate_only"])
        return decision, {"error_code": 0, "results": [(int(x.error), x.message) for x in decision.response]}

    def _deleted_topics(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        """Which of `topic_ids` are topics no more. Ids are never used again, so that is so for good."""
        deleted = controller.deleted_topics([UUID(topic_id) for topic_id in arguments["topic_ids"]])
        return Decision((), None), {"error_code": 0, "deleted": [str(topic_id) for topic_id in deleted]}

    def _alter_quotas(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        wanted = [
            QuotaAlteration(
                [(kind, name) for kind, name in entry["entity"]],
                [(key, limit) for key, limit in entry["limits"]],
            )
            for entry in arguments["entries"]
        ]
        decision = controller.alter_quotas(wanted, validate_only=arguments["validate_only"])
        results = [(0, None) if x is None else (int(x.code), x.message) for x in decision.response]
        return decision, {"error_code": 0, "entries": results}

    def _allocate_producer_ids(
        self, controller: Controller, arguments: dict[str, Any]
    ) -> tuple[Decision[Any], Result]:
        decision = controller.allocate_producer_ids()
        block = decision.response
        return decision, {"error_code": 0, "first": block.first, "end": block.first + block.count}

    def _topic_json(self, topic: TopicResult) -> dict[str, Any]:
        created = topic.error == ErrorCode.NONE and topic.num_partitions > 0
        described = self._host.resources.describe_topic(topic.configs) if created else []
        return {
            "name": topic.name,
            "error_code": int(topic.error),
            "message": topic.message,
            "topic_id": str(topic.topic_id) if topic.topic_id else None,
            "num_partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "configs": [(row.name, row.value, row.source) for row in described],
        }


_OPERATIONS: dict[
    str, Callable[[MetadataService, Controller, dict[str, Any]], tuple[Decision[Any], Result]]
] = {
    "register_broker": MetadataService._register_broker,
    "unregister_broker": MetadataService._unregister_broker,
    "describe_quorum": MetadataService._describe_quorum,
    "renew_replicas": MetadataService._renew_replicas,
    "reassign_partitions": MetadataService._reassign_partitions,
    "list_reassignments": MetadataService._list_reassignments,
    "finish_reassignment": MetadataService._finish_reassignment,
    "create_topics": MetadataService._create_topics,
    "auto_create": MetadataService._auto_create,
    "delete_topics": MetadataService._delete_topics,
    "create_partitions": MetadataService._create_partitions,
    "alter_configs": MetadataService._alter_configs,
    "deleted_topics": MetadataService._deleted_topics,
    "alter_quotas": MetadataService._alter_quotas,
    "allocate_producer_ids": MetadataService._allocate_producer_ids,
}


def _in_batches(records: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """Cut a decision into batches of at most MAX_BATCH_BYTES, or one record. A change of leaders may keep the first of
    them only, so the records of a decision are ordered such that it can be repeated then."""
    batch: list[KeyValue] = []
    size_bytes = 0
    for record in records:
        record_bytes = len(record.key) + len(record.value or b"")
        if batch and size_bytes + record_bytes > MAX_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += record_bytes
    if batch:
        yield batch


def _replay(
    replica: Replica, image: MetadataImage, end_offset: int, changed: Callable[[Change], None]
) -> bool:
    """Replay [image end, end_offset) of the log into an image. Returns whether there was anything. Raises
    CorruptLogError before anything is believed of a batch that has rotted."""
    start_offset = image.end_offset
    for header, batch in replica.log.checked_batches(start_offset, end_offset):
        for record in iter_records(batch):
            if record.offset < image.end_offset:
                continue
            assert record.key is not None, "metadata records have keys"
            value = None if record.value is None else bytes(record.value)
            change = image.replay(bytes(record.key), value, record.offset, header.leader_epoch)
            if change is not None:
                changed(change)
    return image.end_offset > start_offset
