"""The group coordinator: the runtime over the shards of groups, and the maintenance of groups without requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias
from uuid import UUID

import structlog

from broker.config.layers import LiveSettings
from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.memory import CoordinatorMemory
from broker.coordinator.refusals import log_refusals
from broker.coordinator.runtime import CoordinatorRuntime
from broker.environment import Clock
from broker.groups.records import GROUP_RECORDS, GroupRecord
from broker.groups.shard import Shard
from broker.metadata.image import Change, TopicDeleted
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import Ticks
from protocol.controller.topics import FindDeletedTopics, FindDeletedTopicsResult
from protocol.errors import KafkaError

logger = structlog.get_logger()

GroupCoordinator: TypeAlias = CoordinatorRuntime[Shard, GroupRecord]

#: The pause before a question is repeated that no controller has answered, or offsets are looked at again.
RETRY_S = 1.0


def new_group_coordinator(
    topic: InternalTopic,
    settings: LiveSettings,
    metadata: MetadataService,
    rng: random.Random,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    background: Background,
    reads: Reads,
    events: ReplicaEvents,
    controller: ControllerClient,
    ticks: Ticks,
) -> GroupCoordinator:
    memory = CoordinatorMemory(
        settings.config.max_group_bytes,
        lambda: sum(led.shard.size_bytes for led in coordinator.loaded_partitions()),
    )

    def new_shard(replica: Replica) -> Shard:
        return Shard(settings.config, metadata.image, rng, replica.config.max_message_bytes, memory)

    coordinator = GroupCoordinator(topic, GROUP_RECORDS, new_shard, clock, loop, background, reads, events)
    GroupMaintenance(coordinator, settings, clock, loop, background, metadata, controller, ticks)
    log_refusals(memory, "varve.max.group.bytes", ticks)
    return coordinator


class GroupMaintenance:
    """What happens to groups without a request: offsets expire, and the offsets of deleted topics are deleted."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: LiveSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        metadata: MetadataService,
        controller: ControllerClient,
        ticks: Ticks,
    ) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._loop = loop
        self._background = background
        self._controller = controller
        #: Topics that were deleted: id -> name. Their offsets are to be deleted.
        self._deleted: dict[UUID, str | None] = {}
        self._is_expiring = False
        coordinator.on_loaded.append(self._shard_loaded)
        metadata.on_change.append(self._image_changed)
        ticks.every(settings.config.offsets_retention_check_interval_ms / 1000, self._expire_offsets)

    def _shard_loaded(self, led: LedPartition[Shard]) -> None:
        count = len(led.shard.group_ids())
        if count:
            logger.info("groups are loaded", partition=led.replica.partition, count=count)
        self._delete_offsets_of_deleted_topics(led)

    def _image_changed(self, change: Change) -> None:
        """A committed change of the cluster's metadata."""
        if isinstance(change, TopicDeleted):
            # Many may be deleted at a time, and each look goes through all groups.
            self._deleted[change.old.topic_id] = change.old.name
            if len(self._deleted) == 1:
                self._loop.call_soon(self._topics_deleted)

    def _topics_deleted(self) -> None:
        deleted, self._deleted = self._deleted, {}
        for led in self._coordinator.loaded_partitions():
            self._delete_offsets(led, deleted)

    def _delete_offsets(self, led: LedPartition[Shard], deleted: Mapping[UUID, str | None]) -> None:
        if self._coordinator.is_active(led) and led.shard.has_offsets_of(deleted.keys()):
            self._background.run(self._delete_all_offsets(led, deleted))

    def _delete_all_offsets(self, led: LedPartition[Shard], deleted: Mapping[UUID, str | None]) -> Steps:
        """Those that are spared are deleted when the transaction has ended that has an offset in the same place."""
        offsets = led.shard.offsets
        delete = partial(led.shard.delete_topic_offsets, deleted)
        yield from self._coordinator.carry_out(led, list(offsets.group_ids), delete)
        if not offsets.topic_ids.isdisjoint(deleted):
            self._loop.call_later(RETRY_S, self._delete_offsets, led, deleted)

    def _expire_offsets(self, now: float) -> None:
        """Called every offsets.retention.check.interval.ms."""
        if not self._is_expiring:
            self._is_expiring = True
            self._background.run(self._expire_all_offsets())

    def _expire_all_offsets(self) -> Steps:
        for led in self._coordinator.loaded_partitions():
            expire = partial(led.shard.expire_offsets, self._clock.now_ms())
            yield from self._coordinator.carry_out(led, led.shard.group_ids(), expire)
            self._delete_offsets_of_deleted_topics(led)
        self._is_expiring = False

    def _delete_offsets_of_deleted_topics(self, led: LedPartition[Shard]) -> None:
        """A topic may have been deleted while nobody led the partition. The image of this node may be behind and lack a
        topic that is new. So the controller is asked which topics are deleted."""
        if not self._coordinator.is_active(led):
            return
        unknown = led.shard.unknown_topics()
        if not unknown:
            return

        def answered(result: FindDeletedTopicsResult | KafkaError) -> None:
            if isinstance(result, KafkaError):
                self._loop.call_later(RETRY_S, self._delete_offsets_of_deleted_topics, led)
                return
            self._delete_offsets(led, dict.fromkeys(result.topic_ids))

        self._controller.call(FindDeletedTopics(topic_ids=sorted(unknown)), answered)
