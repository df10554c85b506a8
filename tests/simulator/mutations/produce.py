"""What a producer may send (protocol/README.md, Non-obvious)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.handlers import produce
from protocol.records.batch import BatchHeader
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import off


def _believe(records: memoryview, header: BatchHeader, *rest: Any) -> int:
    return header.max_timestamp


def _believe_in_steps(records: memoryview, header: BatchHeader, *rest: Any) -> Generator[None, None, int]:
    yield
    return header.max_timestamp


MUTATIONS = (
    Mutation(
        "records-are-looked-at",
        "A batch is acknowledged only if every client can read its records (protocol/records/validate.py)",
        off(
            (produce, "check_records", lambda _: _believe),
            (produce, "check_records_in_steps", lambda _: _believe_in_steps),
        ),
    ),
)
