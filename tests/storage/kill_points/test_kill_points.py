"""A pass on real files that is killed at a system call leaves the log before it, after it, or after some of its
segments. Here is a part of the points; `scripts/kill-points`, which the slow test runs, tries all."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from storage.errors import CorruptLogError
from storage.segment_swap import COMPACTED_NAME
from tests.storage.kill_points.campaign import PassCampaign, StartCampaign, deaths_around_a_merge
from tests.storage.kill_points.judge import judge
from tests.storage.kill_points.prepared_log import Prepared, prepare
from tests.storage.kill_points.strace import why_not

_REASON = why_not()
needs_strace = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")
#: One call in so many.
_STEP_IN_PASS, _STEP_IN_START = 47, 31


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("kill-points") / "prepared")


def test_the_pass_has_something_of_everything_to_do(prepared: Prepared) -> None:
    counts, states = prepared.counts, prepared.states
    assert counts.superseded_records and counts.aborted_records
    assert counts.expired_tombstones and counts.expired_markers
    assert (
        counts.tombstones.count and counts.markers.count and counts.remnants.count and counts.pinned_batches
    )
    assert len(set(states)) == len(states), (
        "each segment that takes its place can be told from the one before"
    )
    merged = [len(old.bases) - len(new.bases) for old, new in pairwise(states)]
    assert min(merged) == 0 and max(merged) >= 2
    assert len(states[0].aborted) > len(states[-1].aborted) > 0


@pytest.fixture
def campaign(prepared: Prepared, tmp_path: Path) -> PassCampaign:
    return PassCampaign(prepared, tmp_path)


@needs_strace
def test_some_points_of_a_pass(prepared: Prepared, campaign: PassCampaign) -> None:
    assert campaign.last_found == (len(prepared.states) - 1, True)
    points = {*campaign.points[::_STEP_IN_PASS], *deaths_around_a_merge(campaign, prepared)}
    outcomes = list(campaign.run(sorted(points)))
    assert not [outcome for outcome in outcomes if outcome.failure]
    found = [outcome.found.swapped_count for outcome in outcomes if outcome.found is not None]
    assert found[0] == 0 and found[-1] == len(prepared.states) - 1


@needs_strace
def test_some_points_of_a_start_after_such_a_death(
    prepared: Prepared, campaign: PassCampaign, tmp_path: Path
) -> None:
    for death in deaths_around_a_merge(campaign, prepared):
        start = StartCampaign(campaign, prepared, tmp_path, death)
        outcomes = list(start.run(start.points[::_STEP_IN_START]))
        assert not [outcome for outcome in outcomes if outcome.failure]


@needs_strace
def test_the_judge_notices_a_swap_that_is_forgotten(
    prepared: Prepared, campaign: PassCampaign, tmp_path: Path
) -> None:
    """A death in the middle of a swap leaves segments set aside. Without `.compacted` they are gone."""
    middle = deaths_around_a_merge(campaign, prepared)[-1]
    dead = campaign.victim.killed_at(middle.position, tmp_path / "dead")
    (folder,) = dead.rglob(COMPACTED_NAME)
    folder.rename(tmp_path / "away")
    with pytest.raises(CorruptLogError):
        judge(dead, prepared)


@pytest.mark.slow
@needs_strace
def test_every_point_of_a_pass(prepared: Prepared, campaign: PassCampaign) -> None:
    outcomes = list(campaign.run(campaign.points))
    assert len(outcomes) == len(campaign.points) > 500
    assert not [outcome for outcome in outcomes if outcome.failure]
    recorded = [outcome.found.is_recorded for outcome in outcomes if outcome.found is not None]
    assert recorded == sorted(recorded), "from one call on, the journal calls the log cleaned"
