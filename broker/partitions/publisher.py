"""From metadata to replicas: what the committed image assigns to this node exists here, and nothing else.

Nothing is touched before `begin`: an image from before this start may lack what has happened since (replication.md
section 4). Then a log is deleted only because its topic was deleted by id; a log that the image merely lacks is
renamed to `-stray`, kept and reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import UUID

import structlog

from broker.config.descriptors import replicas_of
from broker.config.layers import LiveSettings
from broker.config.topic_config import TopicConfig
from broker.controller.service import MetadataService
from broker.metadata.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, NodeIdentity
from broker.metadata.image import (
    BrokerRegistered,
    Change,
    ConfigsChanged,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.leaders import LeaderTable
from broker.metadata.records import TopicRecord
from broker.partitions.new_topics import NewTopics
from broker.partitions.reconciler import Reconciler
from broker.replication.disk_space import SPACE_RETRY_S
from broker.replication.events import ReplicaEvents
from broker.replication.heartbeat import Heartbeat
from broker.replication.log_opener import NewReplica
from broker.replication.messages import GroupMessages
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.wire import founding_configuration
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from storage.directory import PartitionFolder, delete_partition, list_partitions, set_aside_partition
from storage.disk import Disk, DiskFullError
from storage.journal import Journal
from storage.log import Log
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: Partitions that are opened in one step. Each takes half a millisecond and more, and together they need a few flushes.
OPENED_PER_STEP = 8


class Publisher:
    """Carries out committed changes of the image on this node."""

    def __init__(
        self,
        me: NodeIdentity,
        settings: LiveSettings,
        disk: Disk,
        journal: Journal,
        metadata: MetadataService,
        replicas: Replicas,
        messages: GroupMessages,
        heartbeat: Heartbeat,
        leaders: LeaderTable,
        reconciler: Reconciler,
        new_topics: NewTopics,
        is_image_current: Callable[[], bool],
        events: ReplicaEvents,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        ticks: Ticks,
    ) -> None:
        """`is_image_current`: the image shows what was committed when this node started."""
        self._me = me
        self._settings = settings
        self._disk = disk
        self._journal = journal
        self._metadata = metadata
        self._replicas = replicas
        self._messages = messages
        self._heartbeat = heartbeat
        self._leaders = leaders
        self._reconciler = reconciler
        self._new_topics = new_topics
        self._is_image_current = is_image_current
        self._loop = loop
        self._background = background
        #: Set when all that the image assigns to this node is here.
        self.opened = asyncio.Event()
        self._begun = False
        self._is_closed = False
        #: Partitions to open, and what else is to be done, in the order of the log.
        self._work: deque[GroupKey | Callable[[], None]] = deque()
        self._is_working = False
        #: The settings of all replicas may have changed, and not all replicas use the new ones.
        self._is_reconfiguring = self._must_reconfigure = False
        #: Topics of which it is being found out what is to be opened here.
        self._planning: dict[UUID, None] = {}
        #: Partitions to open that are not open yet.
        self._opening: dict[GroupKey, None] = {}
        #: Those of them for which there was no room, on the disk or among the open files, and when to try again.
        self._waiting_for_room: list[GroupKey] = []
        self._try_again_at = 0.0
        #: Topics whose deletion was replayed before `begin`: their logs may go.
        self._deleted: dict[UUID, None] = {}
        metadata.on_change.append(self._image_changed)
        metadata.on_read.append(self._image_read)
        events.quarantined.append(self._reopen_replica)
        ticks.every(SLOW_TICK_S, self._open_when_there_is_room)

    # -- the image ---------------------------------------------------------------------------------------

    def _image_read(self) -> Steps | None:
        is_ready = not self._begun and self._metadata.is_image_whole and self._is_image_current()
        return self._begin_publishing() if is_ready else None

    def _begin_publishing(self) -> Steps:
        """The image is current: make the directory agree with it. `opened` says when it does."""
        self._begun = True
        image = self._metadata.image
        for folder in list_partitions(self._disk):
            yield
            topic = None if folder.topic_id is None else image.topics.get(folder.topic_id)
            if folder.topic_id == METADATA_TOPIC_ID:
                continue
            if folder.topic_id is None:
                self._place_unnamed_folder(folder)
            elif folder.topic_id in self._deleted:
                self._work.append(
                    partial(self._delete_partition, folder.topic, GroupKey(folder.topic_id, folder.partition))
                )
            elif topic is not None and not self._is_assigned(topic, folder.partition):
                self._work.append(partial(self._give_up_replica, GroupKey(folder.topic_id, folder.partition)))
            elif topic is None:
                path = set_aside_partition(self._disk, folder.topic, folder.partition, folder.topic_id)
                logger.warning("log is not in the metadata, set aside", path=path)
        for key in list(self._journal.groups()):
            yield
            if key.topic_id in self._deleted:
                # The folder was gone, and a crash came before this was durable.
                self._work.append(partial(self._replicas.forget_group, key))
        self._deleted.clear()
        for topic in image.topics.values():
            yield from self._plan_partitions(topic)
        self._start_working()

    def _place_unnamed_folder(self, folder: PartitionFolder) -> None:
        """A folder that does not say its topic. If a replica of that name is assigned to this node, the folder is left
        to whoever opens the replica, and knows what the journal promises."""
        if folder.is_unfinished:
            self._disk.remove_tree(folder.path)
            return
        topic = self._metadata.image.topic_named(folder.topic)
        is_assigned = topic is not None and self._is_assigned(topic, folder.partition)
        if not is_assigned and folder.topic != METADATA_TOPIC_NAME:
            path = set_aside_partition(self._disk, folder.topic, folder.partition, None)
            logger.error("log does not say its topic, set aside", path=path)

    def close(self) -> None:
        """The node stops: nothing is opened any more."""
        self._is_closed = True
        self._work.clear()

    @property
    def has_begun(self) -> bool:
        return self._begun

    def is_opening(self, key: GroupKey) -> bool:
        """Assigned to this node, and to be opened in one of the next loop iterations."""
        return key in self._opening or key.topic_id in self._planning

    def _start_working(self) -> None:
        if not (self._is_working or self._is_closed):
            self._is_working = True
            self._background.run(self._do_work())

    def _do_work(self) -> Steps:
        while self._work:
            opening: list[GroupKey] = []
            while self._work and isinstance(self._work[0], GroupKey) and len(opening) < OPENED_PER_STEP:
                key = self._work.popleft()
                assert isinstance(key, GroupKey)
                opening.append(key)
            if opening:
                self._open_partitions(opening)
            else:
                action = self._work.popleft()
                assert callable(action)
                action()
            yield
        self._is_working = False
        if not self._is_closed:
            self.opened.set()

    def _image_changed(self, change: Change) -> Steps | None:
        """A committed change, in log order."""
        if isinstance(change, BrokerRegistered):
            self._reconciler.mark_for_reconcile(GroupKey(METADATA_TOPIC_ID, 0))
        if isinstance(change, TopicDeleted) and not self._begun:
            self._deleted[change.old.topic_id] = None
        if not self._begun:
            return None
        match change:
            case TopicCreated(new):
                self._new_topics.appeared(new.name, self._loop.time())
                return self._open_topic(new)
            case TopicChanged(_, new):
                return self._change_topic(new)
            case TopicDeleted(old):
                return self._remove_topic(old)
            case ConfigsChanged("broker"):
                self._must_reconfigure = True
                if not self._is_reconfiguring:
                    self._is_reconfiguring = True
                    self._background.run(self._reconfigure_all())
            case BrokerRegistered(new):
                logger.info("broker registered", node_id=new.node_id, directory_id=str(new.directory_id))
        return None

    def _is_assigned(self, topic: TopicRecord, partition: int) -> bool:
        """The target names this node, or the removal of the replica that is here is not known to be committed."""
        if partition >= len(topic.partitions):
            return False
        own = (self._me.node_id, self._me.directory_id)
        assignment = topic.partitions[partition]
        return own[0] in assignment.replicas or own in [replica[:2] for replica in assignment.removing]

    def _open_topic(self, topic: TopicRecord) -> Steps:
        yield from self._plan_partitions(topic)
        self._start_working()

    def _plan_partitions(self, topic: TopicRecord) -> Steps:
        self._planning[topic.topic_id] = None
        for index in range(len(topic.partitions)):
            self._plan_partition(topic, index)
            yield
        del self._planning[topic.topic_id]

    def _plan_partition(self, topic: TopicRecord, index: int) -> None:
        key = GroupKey(topic.topic_id, index)
        if not self._is_assigned(topic, index) or key in self._replicas.by_key:
            self._heartbeat.group_assigned(key)
        elif key not in self._opening and not self._is_closed:
            self._opening[key] = None
            self._work.append(key)

    def _change_topic(self, topic: TopicRecord) -> Steps:
        yield from self._open_topic(topic)
        for replica in self._replicas_of(topic):
            if replica is not None and not self._is_assigned(topic, replica.partition):
                self._give_up_replica(replica.key)
            yield
        yield from self._reconfigure_replicas(topic)
        for replica in self._replicas_of(topic):
            if replica is not None:
                self._reconciler.note_stale_identity(replica)
                self._reconciler.mark_for_reconcile(replica.key)
            yield

    def _open_partitions(self, keys: Sequence[GroupKey]) -> None:
        topics, configs = self._metadata.image.topics, dict[UUID, TopicConfig]()
        wanted: list[NewReplica] = []
        for key in keys:
            del self._opening[key]
            topic = topics.get(key.topic_id)
            if topic is None or not self._is_assigned(topic, key.partition):
                # Deleted or moved since. An attempt on a full disk may have left a folder.
                self._give_up_replica(key)
                continue
            if key.topic_id not in configs:
                configs[key.topic_id] = TopicConfig.resolve(topic.configs, self._settings.config)
            founding = founding_configuration(topic.partitions[key.partition].founding)
            wanted.append(NewReplica(key, topic.name, configs[key.topic_id], founding))
        if len(wanted) > (room := max(0, self._file_room())):
            self._wait_for_room(wanted[room:], "the process may open no more files (ulimit -n)")
            wanted = wanted[:room]
        try:
            begun = self._replicas.create_logs(wanted)
        except DiskFullError as error:
            self._wait_for_room(wanted, f"disk full: {error}")
            return
        for each in wanted:
            self._open_partition(each, begun.get(each.key))

    def _file_room(self) -> int:
        """How many more replicas may open a file. That of the metadata, which is among them, is not counted."""
        return replicas_of(self._settings.config.descriptor_limit) + 1 - len(self._replicas.by_key)

    def _wait_for_room(self, wanted: Sequence[NewReplica], reason: str) -> None:
        """The cluster has decided, because the metadata log had room. What else this node has is served, and can be
        deleted."""
        logger.error("partitions are not opened", count=len(wanted), reason=reason, cause="room")
        for each in wanted:
            self._opening[each.key] = None
            self._waiting_for_room.append(each.key)
        self._try_again_at = self._loop.time() + SPACE_RETRY_S

    def _open_when_there_is_room(self, now: float) -> None:
        """Slow tick: if there is room now."""
        if not self._waiting_for_room or self._replicas.space.is_low or self._file_room() <= 0:
            return
        if now >= self._try_again_at:
            self._work.extend(self._waiting_for_room)
            self._waiting_for_room = []
            self._start_working()

    def _open_partition(self, wanted: NewReplica, begun: Log | None) -> None:
        key = wanted.key
        assignment = self._metadata.image.topics[key.topic_id].partitions[key.partition]
        try:
            replica = self._replicas.open(*wanted, is_only_copy=len(assignment.holders) == 1, begun=begun)
        except DiskFullError as error:
            self._wait_for_room([wanted], f"disk full: {error}")
            return
        if replica is not None:
            self._reconciler.note_stale_identity(replica)
            if assignment.replicas[0] == self._me.node_id:
                # The preferred leader need not wait for an election timeout.
                replica.driver.leader_suspected()
        self._heartbeat.group_assigned(key)
        self._messages.opened(key)

    def _give_up_replica(self, key: GroupKey) -> None:
        """The removal of this node's replica is committed: its log goes. What the journal knows of it stays, so that
        the replica has another identity if the partition ever comes back to this node (it does not hold what it
        promised), and so that this node contradicts leaders of older terms."""
        topic = self._metadata.image.topics.get(key.topic_id)
        if topic is None or self._is_assigned(topic, key.partition):
            return  # deleted, or assigned again, since
        replica = self._replicas.by_key.get(key)
        if replica is not None:
            self._replicas.close(replica, is_clean=False)
        logger.info("replica is given up", topic=topic.name, partition=key.partition)
        delete_partition(self._disk, topic.name, key.partition, key.topic_id)
        self._heartbeat.group_assigned(key)

    def _reopen_replica(self, replica: Replica) -> None:
        """The replica was closed because its log is corrupt: begin it anew."""
        topic = self._metadata.image.topics.get(replica.key.topic_id)
        if topic is not None and replica.partition < len(topic.partitions):
            self._plan_partition(topic, replica.partition)
            self._start_working()

    def _reconfigure_all(self) -> Steps:
        """The settings of all nodes, or of this one, have changed. Perhaps they change again meanwhile."""
        while self._must_reconfigure:
            self._must_reconfigure = False
            for name in self._metadata.image.topic_names():
                topic = self._metadata.image.topic_named(name)
                if topic is not None:
                    yield from self._reconfigure_replicas(topic)
        self._is_reconfiguring = False

    def _reconfigure_replicas(self, topic: TopicRecord) -> Steps:
        """Stops if the topic itself is changed or deleted meanwhile: that has steps of its own."""
        config, image = TopicConfig.resolve(topic.configs, self._settings.config), self._metadata.image
        for replica in self._replicas_of(topic):
            yield
            if image.topic_named(topic.name) is not topic:
                return
            if replica is not None and replica.is_open and replica.config != config:
                replica.reconfigure(config)
                self._work.append(partial(self._apply_retention, replica))
                self._start_working()

    def _apply_retention(self, replica: Replica) -> None:
        """Retention may have become shorter; nobody who shortens it wants to wait for the next check."""
        if replica.is_open:
            replica.apply_retention()

    def _remove_topic(self, topic: TopicRecord) -> Steps:
        for index in range(len(topic.partitions)):
            replica = self._replicas.by_key.get(GroupKey(topic.topic_id, index))
            if replica is not None:
                self._replicas.close(replica, is_clean=False)
            # A log that could not be opened goes, too.
            self._work.append(partial(self._delete_partition, topic.name, GroupKey(topic.topic_id, index)))
            yield
        self._leaders.forget_topic(topic.topic_id)
        self._start_working()

    def _delete_partition(self, name: str, key: GroupKey) -> None:
        delete_partition(self._disk, name, key.partition, key.topic_id)
        if self._journal.state(key) is not None:
            self._replicas.forget_group(key)

    def _replicas_of(self, topic: TopicRecord) -> Iterator[Replica | None]:
        """Of each partition in turn, what is here then."""
        for index in range(len(topic.partitions)):
            yield self._replicas.by_key.get(GroupKey(topic.topic_id, index))
