"""A pass in a process of its own does what a pass on the loop does, and that process works for nobody but its node."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from broker.compaction.child_cleaner import ChildCleaner, CleanerDiedError
from broker.compaction.child_messages import GO_ON, LENGTH, Order
from broker.compaction.facts import segment_facts
from broker.compaction.inline_cleaner import InlineCleaner
from storage.compaction.view_digest import OffsetRange
from storage.disk import MissingPathError
from storage.log import Log
from storage.log_cleaning import PassOver, SegmentReady
from storage.log_digest import DigestTask
from storage.segment_swap import COMPACTING_NAME
from tests.storage.helpers import InlineDisk
from tests.storage.kill_points.journaled_log import FOLDER, data_directory, load_task, open_journaled
from tests.storage.kill_points.prepared_log import Prepared, log_state, prepare

RATE = 1e9


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return prepare(tmp_path / "prepared")


async def test_a_child_does_the_whole_pass(prepared: Prepared) -> None:
    root = str(data_directory(prepared.folder))
    disk = InlineDisk(root)
    journal, log = open_journaled(disk)
    events = []
    async for event in ChildCleaner(root).clean(load_task(prepared.folder), RATE):
        events.append(event)
        if isinstance(event, SegmentReady):
            log.swap(event.bases, event.aborted)
    assert isinstance(events[-1], PassOver) and events[-1].counts == prepared.counts
    assert log_state(log, prepared.replica.history.last_stable_offset) == prepared.states[-1]
    log.close(is_clean=False)
    journal.close()
    disk.close()


def digest_task(prepared: Prepared, log: Log) -> DigestTask:
    cleaning, view = load_task(prepared.folder), OffsetRange(0, prepared.replica.history.last_stable_offset)
    return DigestTask(
        cleaning.directory,
        segment_facts(log, 0, with_ages=False),
        cleaning.rows,
        view,
        view,
        True,
        cleaning.aborted,
        cleaning.map_bytes,
        b"salt",
    )


async def test_a_child_makes_the_digest_that_the_loop_makes(prepared: Prepared) -> None:
    root = str(data_directory(prepared.folder))
    disk = InlineDisk(root)
    journal, log = open_journaled(disk)
    task = digest_task(prepared, log)
    digest = await ChildCleaner(root).digest(task, RATE)
    assert digest == await InlineCleaner(disk).digest(task, RATE)
    assert digest.count == len(prepared.replica.history.view())
    log.close(is_clean=False)
    with pytest.raises(MissingPathError):
        await ChildCleaner(root).digest(task._replace(directory="gone"), RATE)
    journal.close()
    disk.close()


async def test_a_child_that_cannot_start_fails_as_one_that_died(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version was installed in place of this one, and its interpreter lies elsewhere. The worker tries again
    after such a failure, and a comparison says that there is no digest."""
    root = str(data_directory(prepared.folder))
    disk = InlineDisk(root)
    journal, log = open_journaled(disk)
    task = digest_task(prepared, log)
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", str(tmp_path / "gone"))
        with pytest.raises(CleanerDiedError, match=r"did not start: .*No such file"):
            async for _ in ChildCleaner(root).clean(load_task(prepared.folder), RATE):
                pass
        with pytest.raises(CleanerDiedError, match=r"did not start: .*No such file"):
            await ChildCleaner(root).digest(task, RATE)
    assert (await ChildCleaner(root).digest(task, RATE)).count == len(prepared.replica.history.view())
    log.close(is_clean=False)
    journal.close()
    disk.close()


async def test_modules_of_our_names_in_the_working_directory_are_not_imported(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broker", "protocol", "storage"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('somebody else')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    root = str(data_directory(prepared.folder))
    async for event in ChildCleaner(root).clean(load_task(prepared.folder), RATE):
        last = event
    assert isinstance(last, PassOver) and last.counts == prepared.counts


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_child_whose_node_is_gone_builds_nothing(prepared: Prepared, is_ours: bool) -> None:
    """The node may die before its child has asked for the signal that ends it. The order is in the pipe by then, and
    the next node starts a child of its own for the same folder."""
    root = data_directory(prepared.folder)
    order = pickle.dumps(Order(str(root), load_task(prepared.folder), RATE))
    node = os.getpid() if is_ours else os.getppid()
    ended = subprocess.run(
        [sys.executable, "-m", "broker.compaction.child", str(node)],
        # Goes on behind the first event, which is about the map, and ends with the second.
        input=LENGTH.pack(len(order)) + order + GO_ON,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (root / FOLDER / COMPACTING_NAME).exists() == is_ours == bool(ended.stdout), ended.stderr
