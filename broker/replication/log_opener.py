"""From a folder and the journal's word of it to a log that may be used: opened, begun, or set aside.

Replication.md sections 3 and 4: what was lost here must not be taken for what never was, and a log of another life of
a name is never opened for this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import structlog

from broker.config.topic_config import TopicConfig
from broker.replication import wire
from broker.replication.watermarks.bounds import DurableBounds
from raft.types import FOUNDING_TERM, Configuration, HardState, ReplicaId, RowKind
from storage.directory import has_entries, set_aside_partition
from storage.disk import Disk
from storage.errors import CorruptLogError
from storage.journal import Journal
from storage.journal_records import GroupState, Incarnation, Quarantine, Vote
from storage.lineage import LINEAGE_NAME, Lineage
from storage.log import Log
from storage.log_creation import NewLog, create_log, create_logs
from storage.log_recovery import open_log
from storage.log_types import FlushTicket, GroupKey, LogConfig
from storage.partition_folder import METADATA_NAME, folder_name, read_topic_id
from storage.producer_snapshot import load_producers
from storage.producer_state import ProducerStates

logger = structlog.get_logger()


class NewReplica(NamedTuple):
    """What may have to be begun; as for `LogOpener.open`."""

    key: GroupKey
    topic: str
    config: TopicConfig
    founding: Configuration | None


class LogOpener:
    """The logs of one data directory."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        bounds: DurableBounds,
        node_id: int,
        directory_id: bytes,
        *,
        is_clean_start: bool,
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._bounds = bounds
        self._node_id = node_id
        self._directory_id = directory_id
        self._is_clean_start = is_clean_start
        #: Groups whose log this process has opened: the clean-shutdown marker speaks of the first time only.
        self._opened: dict[GroupKey, None] = {}

    def create_logs(self, wanted: Sequence[NewReplica]) -> dict[GroupKey, Log]:
        """Make the logs of those that never were here, for `open`: all of them with a few flushes, where each by itself
        would need as many."""
        new = [
            (each, NewLog(self._directory_of(each.key, each.topic), each.key, each.config.log_config))
            for each in wanted
            if self._journal.state(each.key) is None
        ]
        new = [(each, log) for each, log in new if not self._disk.exists(log.directory)]
        if not new:
            return {}
        logs = create_logs(self._disk, [log for _, log in new])
        # The vote record comes first: with it, the log is one whose history we know.
        for each, _ in new:
            self._journal.append(Vote(each.key, FOUNDING_TERM, None))
        self._journal.flush()
        self._found([(log, each.founding) for (each, _), log in zip(new, logs, strict=True)])
        self._opened.update(dict.fromkeys(log.group for log in logs))
        return {log.group: log for log in logs}

    def _directory_of(self, key: GroupKey, topic: str) -> str:
        return f"{self._disk.root}/{folder_name(topic, key.partition)}"

    def open(
        self,
        key: GroupKey,
        topic: str,
        config: LogConfig,
        founding: Configuration | None,
        *,
        is_only_copy: bool,
    ) -> tuple[Log, ProducerStates] | None:
        """The log of a replica, or an empty one.

        `founding` is the group's first configuration where the caller knows it. A replica begins with it as row 0
        only if that names this very directory and no log of the group ever was here; otherwise it begins blank
        and waits to be added by its leader (replication.md section 3).

        A log that must not be used is discarded under a raised incarnation, and built anew from the others. If there
        are none (`is_only_copy`, or this replica was the only voter: the others of the assignment may hold nothing
        yet), nothing is touched and None is returned: the partition is offline.
        """
        directory = self._directory_of(key, topic)
        state = self._journal.state(key)
        self._make_way(key, topic, directory)
        opened: tuple[Log, ProducerStates] | None = None
        if state is not None and state.is_quarantined:
            logger.warning("log is quarantined", directory=directory)
        elif self._disk.exists(f"{directory}/{METADATA_NAME}"):
            opened = self._open_log(key, directory, config)
        elif state is not None:
            # It may have acknowledged what is gone: as another identity it can do no harm.
            logger.error("log is gone", directory=directory)
        if opened is None and self._may_have_acknowledged(key, directory):
            if is_only_copy or self._was_only_voter(directory):
                logger.error("partition is offline, its only log cannot be used", directory=directory)
                return None
            logger.error("starting over, to be rebuilt from the other replicas", directory=directory)
            self._become_another(key)
        if opened is None:
            opened = self._begin_log(key, directory, config, founding), ProducerStates()
        elif opened[0].end_index == 0:
            self._found([(opened[0], founding)])
        self._opened[key] = None
        return opened

    def identity(self, key: GroupKey) -> tuple[ReplicaId, HardState]:
        """Who the replica of an opened log is, and what it has voted."""
        state = self._journal.state(key)
        assert state is not None and state.has_vote
        voted = None if state.voted_for is None else ReplicaId(*state.voted_for)
        return self._own_id(state.incarnation), HardState(state.term, voted)

    def forget_group(self, key: GroupKey) -> None:
        """The topic is gone."""
        self._opened.pop(key, None)

    def _own_id(self, incarnation: int) -> ReplicaId:
        return ReplicaId(self._node_id, self._directory_id, incarnation)

    def _open_log(
        self, key: GroupKey, directory: str, config: LogConfig
    ) -> tuple[Log, ProducerStates] | None:
        """None where the log on disk must not be used: it was corrupt and is quarantined now."""
        state = self._journal.state(key)
        if state is None or not state.has_vote:
            # The log is there and its vote is not: the identity is lost (replication.md section 3).
            logger.error("log without a recorded vote", directory=directory)
            return None
        try:
            log = open_log(
                self._disk,
                directory,
                key,
                config,
                recorded=state.flushed_end,
                log_start=self._bounds.of(key).log_start,
                is_clean=self._is_clean_start and key not in self._opened,
            )
            log.rewritten_end = self._bounds.of(key).rewritten_end
            # Reads segments that recovery had no need to look at, so it may find them corrupt.
            return log, load_producers(log)
        except CorruptLogError as error:
            logger.error("log is corrupt", directory=directory, error=str(error))
            self._journal.append(Quarantine(key, True))
            self._journal.flush()
            return None

    def _may_have_acknowledged(self, key: GroupKey, directory: str) -> bool:
        """Whether a replica of this identity was here before: then an empty log must have another identity.

        A folder without data and rows of which the journal knows nothing is a creation that a crash cut short: row 0 is
        written after the first vote record is durable, so a row without a vote means that a vote is lost.
        """
        if self._journal.state(key) is not None:
            return True
        return has_entries(self._disk, directory)

    def _was_only_voter(self, directory: str) -> bool:
        """By the newest configuration that can be read here."""
        if not self._disk.exists(f"{directory}/{LINEAGE_NAME}"):
            return False
        rows = [wire.row_from_log(row) for row in Lineage.open(self._disk, directory, 0).rows]
        configuration = next((row.configuration for row in reversed(rows) if row.configuration), None)
        if configuration is None:
            return False
        return [voter.directory_id for voter in configuration.voters] == [self._directory_id]

    def _make_way(self, key: GroupKey, topic: str, directory: str) -> None:
        """A log of another life of this name is never opened for this one (replication.md section 4). One that does not
        say whose it is, is this one's if there ever was one here."""
        if not self._disk.exists(f"{directory}/{METADATA_NAME}"):
            return
        found: UUID | None = None
        try:
            found = read_topic_id(self._disk, directory)
        except CorruptLogError as error:
            logger.error("log does not say its topic", directory=directory, error=str(error))
            if self._journal.state(key) is not None:
                return
        if found != key.topic_id:
            path = set_aside_partition(self._disk, topic, key.partition, found)
            logger.warning("log is of another topic of this name, set aside", path=path)

    def _begin_log(
        self, key: GroupKey, directory: str, config: LogConfig, founding: Configuration | None
    ) -> Log:
        state = self._journal.state(key)
        log = create_log(self._disk, directory, key, config)
        if state is not None:
            self._journal.append(Quarantine(key, False))
        # The vote record comes first: with it, the log is one whose history we know.
        term = FOUNDING_TERM if state is None else max(state.term, FOUNDING_TERM)
        self._journal.append(Vote(key, term, None))
        self._journal.flush()
        self._found([(log, founding)])
        return log

    def _found(self, logs: Sequence[tuple[Log, Configuration | None]]) -> None:
        """Write row 0 into logs that never held anything, where it is known, names this directory, and no log of the
        group was ever lost here. A crash may have come between the vote record and the row: then it is written now."""
        tickets: list[tuple[Log, FlushTicket]] = []
        for log, founding in logs:
            state = self._journal.state(log.group)
            assert state is not None and log.end_index == 0
            own = self._own_id(state.incarnation)
            if founding is not None and _has_elected_nobody(state) and own in founding.voters:
                log.append_row(
                    FOUNDING_TERM, RowKind.CONFIGURATION, wire.encode_configuration(founding, None)
                )
                tickets.append((log, log.begin_flush()))
        self._disk.flush_together([file for _, ticket in tickets for file in ticket.files])
        for log, ticket in tickets:
            log.finish_flush(ticket)

    def _become_another(self, key: GroupKey) -> None:
        """Take the next incarnation. Until its log is created, whatever lies in the folder is in quarantine: the names
        that a killed process left there may be in the page cache only."""
        state = self._journal.state(key)
        self._journal.append(Incarnation(key, 1 if state is None else state.incarnation + 1))
        self._journal.append(Quarantine(key, True))
        self._journal.flush()


def _has_elected_nobody(state: GroupState) -> bool:
    """It was in no election yet. Term 0 without a vote: of a directory that is older than elections of term 0."""
    return state.term <= 0 and state.voted_for is None
