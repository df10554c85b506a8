"""No truncation is seen: what a consumer has read stays a prefix of what every later leader says of its epochs
(KIP-320; committed is never truncated, Raft, figure 3, state machine safety)."""

from __future__ import annotations

from storage.log_types import GroupKey


def check_position(key: GroupKey, epoch: int, position: int, answer_epoch: int, end_offset: int) -> None:
    """A consumer has read up to `position`, the last batch of it of `epoch`. A leader says where that epoch ended: a
    lower end, or none, is what clients report as truncation."""
    assert answer_epoch == epoch and end_offset >= position, (
        f"{key} was read up to {position} under epoch {epoch}; now epoch {answer_epoch} ended at {end_offset}"
    )
