"""The idempotence experiment on a real node, and the comparison of a log with what was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lab import idempotence
from pipeline.lab.bench import Bench
from pipeline.lab.sending import Verdict, judge
from tests.pipeline.producer.conftest import Node


def test_what_is_lost_doubled_and_out_of_order_is_counted() -> None:
    assert judge([0, 1, 2], [0, 1, 2]) == Verdict(3, 3, lost=0, doubled=0, steps_back=0)
    assert judge([0, 1, 2, 3], [0, 2, 1, 2]) == Verdict(4, 4, lost=1, doubled=1, steps_back=1)
    # What was never acknowledged may be there.
    assert judge([1], [0, 1]) == Verdict(1, 2, lost=0, doubled=0, steps_back=0)


@pytest.mark.slow
def test_only_without_idempotence_and_transactional_id_records_are_doubled(
    node: Node, tmp_path: Path
) -> None:
    said: list[str] = []
    findings = idempotence.run(Bench(node.bootstrap, tmp_path, said.append, is_quick=True))
    wire, restarts = findings.tables
    rows = [dict(zip([column.name for column in wire.columns], row, strict=True)) for row in wire.rows]
    assert [(row["idempotent"], row["answers lost"] == 0, row["doubled"] == 0) for row in rows] == [
        (False, True, True),
        (True, True, True),
        (False, False, False),
        (True, False, True),
    ]
    assert all(row["lost"] == 0 and row["acked"] == 500 for row in rows)
    doubled = [row[4] for row in restarts.rows]
    # Killed midway between two positions, three times.
    assert isinstance(doubled[0], int) and doubled[0] >= 3 * 20
    assert doubled[1] == 0
    assert [row[5] for row in restarts.rows] == [0, 0]
    assert f"{rows[2]['doubled']:,} copies" in findings.text
