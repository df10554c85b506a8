"""Which producers are dropped when there are too many, and what becomes of their retries (replication.md section 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from storage.producer_state import Append, Duplicate, ProducerStates
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import off

#: The producer whose batch comes again, and the first of the many.
RETRYING, OTHERS = 3_000_000, 4_000_000


def _also_uncommitted(drop: Callable[..., int]) -> object:
    return lambda self, count, below_offset: drop(self, count, 1 << 62)


def _believes_unknown(check: Callable[..., Append | Duplicate]) -> object:
    def checked(self: ProducerStates, header: BatchHeader) -> Append | Duplicate:
        self.has_dropped = False
        return check(self, header)

    return checked


def _remember_at_most(stage: Stage, count: int) -> None:
    """Producer ids, on every node."""
    for node in stage.cluster.nodes.values():
        settings = node.settings
        settings.layers = replace(
            settings.layers, static=replace(settings.layers.static, max_producer_ids=count)
        )
        settings.config = settings.layers.config


def _drop_producers(stage: Stage, node_id: int) -> None:
    """At once, not with the next tick."""
    stage.call(node_id, stage.cluster.nodes[node_id].replicas.producer_limit.check, stage.loop.time())


def a_batch_is_on_its_way_while_producers_are_dropped(stage: Stage) -> None:
    """A leader drops producers while a batch of one of them is not committed. The answer to that is lost, and it comes
    again."""
    stage.create_topic()
    for number in range(stage.rng.randint(3, 8)):
        stage.write(producer_id=OTHERS + number)
    _remember_at_most(stage, 1)
    leader = stage.leader()
    written = stage.append(leader, producer_id=RETRYING)
    later = [stage.append(leader, producer_id=OTHERS + 100 + number) for number in range(3)]
    _drop_producers(stage, leader)
    stage.wait(lambda: all(each.error is not None for each in (written, *later)))
    if written.error is ErrorCode.NONE:
        again = stage.write(producer_id=RETRYING, sequence=0)
        assert again == written.base_offset, (
            f"a batch at {written.base_offset} was appended again, at {again}"
        )
    stage.write(producer_id=OTHERS + 1000)


def a_dropped_producer_comes_back_with_a_retry(stage: Stage) -> None:
    """It has written some batches, and the answer to the last one was lost. It is dropped, and sends that again."""
    stage.create_topic()
    for _ in range(stage.rng.randint(2, 7)):
        stage.write(producer_id=RETRYING)
    sequence = stage.sequence_of(RETRYING) - 1
    for number in range(stage.rng.randint(3, 8)):
        stage.write(producer_id=OTHERS + number)
    stage.everybody_has_all()
    _remember_at_most(stage, 1)
    for node_id in stage.cluster.alive():
        _drop_producers(stage, node_id)
    if stage.rng.random() < 0.5:
        stage.lead(stage.followers()[0])
    try:
        again = stage.write(producer_id=RETRYING, sequence=sequence)
    except KafkaError as refused:
        assert refused.code is ErrorCode.UNKNOWN_PRODUCER_ID
    else:
        raise AssertionError(f"sequence {sequence} of a dropped producer was appended again, at {again}")
    stage.write(producer_id=OTHERS + 1000)


MUTATIONS = (
    Mutation(
        "dropped-is-committed",
        "A producer is dropped only if all its batches are committed (section 8)",
        off((ProducerStates, "drop_least_recent", _also_uncommitted)),
        story=a_batch_is_on_its_way_while_producers_are_dropped,
    ),
    Mutation(
        "unknown-may-be-dropped",
        "Where producers were dropped, an unknown one has to begin with sequence 0 (section 8)",
        off((ProducerStates, "check", _believes_unknown)),
        story=a_dropped_producer_comes_back_with_a_retry,
    ),
)
