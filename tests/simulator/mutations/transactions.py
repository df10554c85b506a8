"""What transactions promise, in partitions and at their coordinators (broker/transactions, storage)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from broker.coordinator.loading import _Newest
from broker.groups.offsets import Offsets
from broker.replication.replica import Replica
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import MarkerSender
from broker.transactions.metadata import ProducerIdAndEpoch, TopicPartition, TransactionMetadata
from broker.transactions.requests import TransactionRequest, refusal
from broker.transactions.shard import TransactionShard
from broker.transactions.verification import TransactionVerifier, Verification
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue
from storage.aborted_index import AbortedIndex
from storage.aborted_transactions import AbortedTransactions
from storage.producer_state import ProducerStates
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.nemesis import after as after_call
from tests.simulator.mutations.nemesis import later
from tests.simulator.mutations.switch import off
from tests.simulator.mutations.transaction_stories import (
    a_coordinator_is_cut_off_when_it_is_to_commit,
    a_marker_comes_behind_its_copy,
    a_stale_coordinator_consents,
    a_stale_coordinator_is_asked,
    a_transaction_ends_while_a_partition_is_verified,
    an_end_comes_when_the_next_transaction_has_begun,
    markers_of_an_old_coordinator_come_late,
)

#: As no coordinator has it.
NEWEST_EPOCH = (1 << 31) - 1


def _first_open_only(_: object) -> object:
    def last_stable_offset(self: ProducerStates, high_watermark: int) -> int:
        first_open = self.first_open_offset
        return high_watermark if first_open is None else min(high_watermark, first_open)

    return last_stable_offset


def _markers_at_once(change: Callable[..., Any]) -> object:
    def changed(self: TransactionShard, after: TransactionMetadata, now: float) -> Any:
        outcome = change(self, after, now)
        if after.state.is_prepared:
            outcome.answers.clear()
            self._on_prepared(self, after)
        return outcome

    return changed


def _first_marker_is_enough(written: Callable[..., None]) -> object:
    def all_written(marker: Any) -> None:
        marker.transaction.missing.intersection_update({marker.partition})
        written(marker)

    return staticmethod(all_written)


def _forgets_prepared(loaded: Callable[..., Iterator[None]]) -> object:
    def forgetting(self: TransactionShard, now: float, now_ms: int) -> Iterator[None]:
        on_prepared, self._on_prepared = self._on_prepared, lambda shard, metadata: None
        yield from loaded(self, now, now_ms)
        self._on_prepared = on_prepared

    return forgetting


def _believes_clients(verify: Callable[..., None]) -> object:
    def verified(
        self: TransactionVerifier,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        replicas: Sequence[Replica],
        done: Callable[[Verification], None],
        *,
        is_added: bool,
    ) -> None:
        if is_added:
            verify(self, transactional_id, producer, replicas, done, is_added=True)
        else:
            verification = Verification(producer, replicas)
            verification.answered([ErrorCode.NONE] * len(replicas))
            done(verification)

    return verified


def _only_leader_epoch(_: object) -> object:
    return lambda self, replica: (replica.leader_epoch, -1)


def _count_at_once(_: object) -> object:
    def replay(self: Offsets, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        del producer_id
        self.replay(key, value)

    return replay


def _loaded_at_once(_: object) -> object:
    def add(self: _Newest, producer_id: int, key: bytes, value: bytes | None) -> None:
        del producer_id
        self.add(key, value)

    return add


def _any_coordinator(check: Callable[..., None]) -> object:
    def checked(
        self: ProducerStates, producer_id: int, producer_epoch: int, coordinator_epoch: int, attempt: int
    ) -> None:
        del coordinator_epoch
        check(self, producer_id, producer_epoch, NEWEST_EPOCH, attempt)

    return checked


def _any_attempt(check: Callable[..., None]) -> object:
    def checked(
        self: ProducerStates, producer_id: int, producer_epoch: int, coordinator_epoch: int, attempt: int
    ) -> None:
        del attempt
        check(self, producer_id, producer_epoch, coordinator_epoch)

    return checked


@contextmanager
def leaders_die_at_the_end(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """Now and then, when the end of a transaction is decided, the node dies that leads one of its partitions."""

    def strike(partitions: list[TopicPartition]) -> None:
        leaders = [cluster.leader(*each) for each in partitions]
        alive = [node_id for node_id in leaders if node_id is not None]
        if alive and len(cluster.alive()) == len(cluster.node_ids):
            victim = rng.choice(alive)
            cluster.kill(victim)
            cluster.start_later(victim, rng.uniform(0.1, 1.5))

    def look(shard: TransactionShard, after: TransactionMetadata, now: float) -> None:
        del shard, now
        if after.state.is_prepared and rng.random() < 0.3:
            later(cluster, 0.0, strike, sorted(after.partitions))

    with after_call(cluster, TransactionShard, "_change", look):
        yield


def _unconfirmed(_: object) -> object:
    def ask(self: TransactionCoordinator, request: TransactionRequest, reply: Callable[..., None]) -> None:
        self._runtime.ask(request.transactional_id, reply, refusal, partial(self._decide, request))

    return ask


def _never_times_out(change: Callable[..., Any]) -> object:
    def changed(self: TransactionShard, *args: Any) -> Any:
        outcome = change(self, *args)
        self._times_out_at.clear()
        return outcome

    return changed


def _loads_no_timeouts(loaded: Callable[..., Iterator[None]]) -> object:
    def without(self: TransactionShard, now: float, now_ms: int) -> Iterator[None]:
        for step in loaded(self, now, now_ms):
            self._times_out_at.clear()
            yield step

    return without


def _same_epoch(fence: Callable[..., TransactionMetadata]) -> object:
    return lambda self, now_ms: replace(fence(self, now_ms), epoch=self.epoch)


def _without_bump(end: Callable[..., TransactionMetadata]) -> object:
    def ended(self: TransactionMetadata, producer: ProducerIdAndEpoch, **how: Any) -> TransactionMetadata:
        return end(self, producer, **{**how, "client_version": 0})

    return ended


def _forgets_aborted(_: object) -> object:
    def restore(self: AbortedTransactions, active_base: int, *_: Any) -> None:
        self._known.setdefault(active_base, AbortedIndex())

    return restore


MUTATIONS = (
    Mutation(
        "stable-when-marker-committed",
        "A transaction holds the last stable offset until its marker is committed (storage/README.md)",
        off((ProducerStates, "last_stable_offset", _first_open_only)),
        mix=("isolate", "kill", "slow disk"),
        has_transactions=True,
    ),
    Mutation(
        "end-durable-before-markers",
        "The end of a transaction is committed before its markers are sent (broker/transactions/coordinator.py)",
        off((TransactionShard, "_change", _markers_at_once)),
        story=a_coordinator_is_cut_off_when_it_is_to_commit,
    ),
    Mutation(
        "marker-coordinator-epoch",
        "A marker of an older coordinator epoch than one before is refused (storage/README.md)",
        off((ProducerStates, "check_marker", _any_coordinator)),
        story=markers_of_an_old_coordinator_come_late,
    ),
    Mutation(
        "marker-attempt",
        "A marker that its coordinator has sent again since, and that is appended, is refused (KIP-1228)",
        off((ProducerStates, "check_marker", _any_attempt)),
        story=a_marker_comes_behind_its_copy,
    ),
    Mutation(
        "complete-after-all-markers",
        "A transaction is complete when the markers of all its partitions are committed",
        off((MarkerSender, "_written", _first_marker_is_enough)),
        conditions=leaders_die_at_the_end,
        has_transactions=True,
    ),
    Mutation(
        "markers-sent-again",
        "Whoever takes a coordinator over sends the markers of all transactions whose end is decided",
        off((TransactionShard, "loaded", _forgets_prepared)),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "verified-before-first-append",
        "The coordinator is asked before a transaction's first batch is appended to a partition (KIP-890)",
        off((TransactionVerifier, "verify", _believes_clients)),
        mix=("client cut",),
        has_transactions=True,
    ),
    Mutation(
        "verification-void-after-marker",
        "What the coordinator has said of a partition is void when a marker of the producer is appended meanwhile",
        off((Verification, "_state_of", _only_leader_epoch)),
        story=a_transaction_ends_while_a_partition_is_verified,
    ),
    Mutation(
        "consent-of-newest-coordinator",
        "What a coordinator has said of a partition is void if a later one has written a marker of the producer there",
        off((Verification, "_is_stale", lambda _: lambda self, replica: False)),
        story=a_stale_coordinator_consents,
    ),
    Mutation(
        "offsets-pending-until-marker",
        "Offsets of a transaction count when its marker says that it is committed (broker/groups/README.md)",
        off((Offsets, "replay_pending", _count_at_once)),
        mix=("client cut",),
        has_transactions=True,
    ),
    Mutation(
        "loading-follows-markers",
        "Who loads a coordinator's log replays records of transactions as their markers say (broker/coordinator)",
        off((_Newest, "add_pending", _loaded_at_once)),
        mix=("kill", "isolate", "transfer"),
        has_transactions=True,
    ),
    Mutation(
        "late-end-fenced-by-connection",
        "With transaction.version 1, an EndTxn by an older connection than the transaction's is refused (KAFKA-17754)",
        off((TransactionShard, "_check_connection", lambda _: lambda *arguments: None)),
        story=an_end_comes_when_the_next_transaction_has_begun,
    ),
    Mutation(
        "transaction-answers-confirmed",
        "What a transaction's coordinator answers without a record waits for a liveness round (section 6)",
        off((TransactionCoordinator, "ask", _unconfirmed)),
        story=a_stale_coordinator_is_asked,
    ),
    Mutation(
        "end-raises-epoch",
        "With transaction.version 2, each end of a transaction raises the producer's epoch (KIP-890)",
        off((TransactionMetadata, "end", _without_bump)),
        mix=("client cut",),
        has_transactions=True,
    ),
    Mutation(
        "time-out-aborts",
        "A transaction that lasts longer than its timeout is aborted",
        off(
            (TransactionShard, "_change", _never_times_out), (TransactionShard, "loaded", _loads_no_timeouts)
        ),
        mix=("client cut",),
        has_transactions=True,
    ),
    Mutation(
        "time-out-fences",
        "Whose transaction is aborted by its timeout, or by a new producer, is fenced by the epoch in the markers",
        off((TransactionMetadata, "fence", _same_epoch)),
        mix=("client cut", "pause"),
        has_transactions=True,
    ),
    Mutation(
        "aborted-known-after-reopening",
        "The aborted transactions of the active segment are those of the snapshot and of the replay behind it",
        off((AbortedTransactions, "restore", _forgets_aborted)),
        mix=("kill", "stop"),
        has_transactions=True,
    ),
)
