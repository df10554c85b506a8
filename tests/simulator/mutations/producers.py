"""Which producers are dropped when there are too many, and what becomes of their retries (replication.md section 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.replication.sequence_gaps import SequenceGaps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from storage.producer_state import Append, Duplicate, Gap, ProducerStates
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import off

#: The producer whose batch comes again, and the first of the many.
RETRYING, OTHERS = 3_000_000, 4_000_000


def _also_uncommitted(drop: Callable[..., int]) -> object:
    return lambda self, count, below_offset: drop(self, count, 1 << 62)


def _believes_unknown(check: Callable[..., Append | Duplicate | Gap]) -> object:
    def checked(self: ProducerStates, header: BatchHeader) -> Append | Duplicate | Gap:
        self.highest_dropped = -1
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


def a_later_batch_reaches_the_new_leader_first(stage: Stage) -> None:
    """The first batches of a producer are under way to a leader that is cut off; the next goes to its successor."""
    stage.create_topic()
    before = [stage.write(producer_id=RETRYING) for _ in range(stage.rng.choice((0, 0, 1, 3)))]
    stage.everybody_has_all()
    old = stage.leader()
    stage.isolate(old)
    overtaken = [stage.append(old, producer_id=RETRYING) for _ in range(stage.rng.randint(1, 3))]
    stage.wait(lambda: stage.leader() != old)
    behind = range(len(before) + len(overtaken), len(before) + len(overtaken) + stage.rng.randint(1, 2))
    for sequence in behind:
        try:
            stage.append(stage.leader(), producer_id=RETRYING, sequence=sequence)
        except KafkaError as refused:
            assert refused.code is ErrorCode.NOT_ENOUGH_REPLICAS, refused
        else:
            raise AssertionError(f"sequence {sequence} was appended before {overtaken[0].sequence}")
    for sequence in range(len(before), behind.stop):
        stage.write(producer_id=RETRYING, sequence=sequence)


def _as_kafka(refuse_once: Callable[..., None]) -> object:
    def refuse(self: SequenceGaps, header: BatchHeader, gap: Gap, now: float) -> None:
        if gap.error is not None:
            raise gap.error

    return refuse


MUTATIONS = (
    Mutation(
        "gap-is-refused-once",
        "A batch with a gap before it is refused once: what is missing may be under way (sequence_gaps)",
        off((SequenceGaps, "refuse_once", _as_kafka)),
        story=a_later_batch_reaches_the_new_leader_first,
    ),
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
