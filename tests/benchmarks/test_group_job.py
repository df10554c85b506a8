"""What the groups job believes of a rebalance (benchmarks/group_job.py)."""

from __future__ import annotations

import threading

import pytest

from benchmarks import group_job
from benchmarks.group_job import Group
from benchmarks.python_driver.client import JobError


def test_a_rebalance_is_over_when_everybody_has_some_and_nobody_the_same() -> None:
    group = Group(4)
    began = group.watch()
    group.assigned("a", {0, 1, 2, 3}, incremental=False)

    def share() -> None:
        group.assigned("a", {0, 1}, incremental=False)
        group.assigned("b", {2, 3}, incremental=False)

    told = threading.Timer(0.05, share)
    told.start()
    assert group.settled(2, began) >= 0.05
    told.join()


def test_who_gives_up_nothing_is_undisturbed() -> None:
    group = Group(4)
    for number, member in enumerate("abcd"):
        group.assigned(member, {number}, incremental=True)
    began = group.watch()
    group.left("d")
    group.revoked("d", {3})
    group.revoked("c", {2})
    group.assigned("c", {2, 3}, incremental=True)
    assert group.settled(3, began) >= 0
    assert group.undisturbed() == 2


def test_partitions_without_an_owner_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_job, "TIMEOUT_S", 0.01)
    group = Group(4)
    began = group.watch()
    group.assigned("a", {0, 1}, incremental=False)
    with pytest.raises(JobError, match=r"the members own \[2\] partitions"):
        group.settled(1, began)
