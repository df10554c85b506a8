"""What the runtime asks of a coordinator: the state of one partition of its internal topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from broker.coordinator.outcome import Decided
from broker.scheduling.background import Steps

R = TypeVar("R")


class Shard(Protocol[R]):
    """The state of one partition, by key (a group id, a transactional id). It decides, and it never waits.

    Invariant: durable state changes in `replay` alone. A shard that loads the log therefore comes to the same state as
    the shard that decided.
    """

    def replay(self, record: R) -> None:
        """One record of the log, or one that was appended just now. Must not depend on older records of the same key:
        loading replays only the newest one, and no tombstone."""

    def replay_pending(self, producer_id: int, record: R) -> None:
        """A record of an open transaction, never a tombstone. It counts when the transaction is committed, as if it
        were written then; unless a later record of the same key without a transaction took its place."""

    def pending_keys(self, producer_id: int) -> Mapping[str, int]:
        """The keys that have pending records of this producer, and how many."""

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Steps:
        """A transaction marker: what is pending of the producer counts now, or never. What becomes pending after the
        call, also before the first step, is of its next transaction."""

    def loaded(self, now: float, now_ms: int) -> Steps:
        """All of the log is replayed. The shard takes requests when these steps are done. `now`: seconds of the loop's
        clock; `now_ms`: milliseconds of the wall clock."""

    def update_deadline(self, key: str) -> None:
        """A decision about this key is carried out. Its deadline may be another one, and the key may be gone."""

    def next_deadline(self) -> float | None:
        """When `take_due_keys` has something to give, in seconds of the loop's clock. It may be too early, never too
        late. Asked after every decision, so it must not walk the keys."""

    def take_due_keys(self, now: float, limit: int) -> list[str]:
        """At most `limit` of the keys whose deadline has come. The caller owes each an `expire` and an
        `update_deadline`."""

    def expire(self, key: str, now: float, now_ms: int) -> Decided[R]:
        """The deadline of this key has come. `now` and `now_ms` as in `loaded`."""
