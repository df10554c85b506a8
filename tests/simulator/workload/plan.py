"""What a seed has clients do: topics and their settings, and who writes and reads them."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

#: More than any client sends but on purpose.
MAX_MESSAGE_BYTES = 2048
#: How soon a producer retries. A slow one may find that the leadership has moved and come back.
RETRIES_S = (0.05, 0.3, 1.0)
#: How long a producer writes where nothing goes wrong: at most as long as there are faults.
LASTS_S = (1.0, 6.0)
#: How many seeds have transactional producers.
TRANSACTIONAL_SHARE = 0.75
#: How many seeds have a topic that is compacted.
COMPACTED_SHARE = 0.4
#: How many offsets each member of a group commits at most. It lives for two seconds or so at a time and commits five
#: a second, so a group is done long before the limit of a healed cluster (tests.simulator.run).
MEMBER_OFFSETS = 75
RETENTION = ("retention.bytes", "retention.ms")
#: Settings of all topics.
_USUAL = (
    ("max.message.bytes", str(MAX_MESSAGE_BYTES)),
    # Clocks of nodes jump; that a batch from the future is refused is not what is looked at here.
    ("message.timestamp.after.max.ms", str((1 << 63) - 1)),
)


class TopicPlan(NamedTuple):
    name: str
    #: In the end. Clients use all of them from the beginning, as soon as they are there.
    partitions: int
    #: With which it is created; the others are added while clients are at work.
    partitions_at_first: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]
    #: Deleted and created again under its name while clients are at work.
    times_recreated: int
    #: Clients delete its records.
    is_purged: bool
    #: Settings changed meanwhile.
    times_altered: int

    @property
    def is_recreated(self) -> bool:
        return self.times_recreated > 0

    @property
    def is_compacted(self) -> bool:
        return "compact" in dict(self.configs).get("cleanup.policy", "")

    @property
    def delete_retention_s(self) -> float:
        """How long a tombstone stays, of a topic that is compacted."""
        return int(dict(self.configs)["delete.retention.ms"]) / 1000

    @property
    def min_insync(self) -> int | None:
        """None: an administrator may change it."""
        return None if self.times_altered else int(dict(self.configs).get("min.insync.replicas", "1"))

    @property
    def loses_records(self) -> bool:
        """To clients, or to a retention that it has or may be given."""
        return self.is_purged or self.times_altered > 0 or any(name in RETENTION for name, _ in self.configs)


class ProducerPlan(NamedTuple):
    topic: TopicPlan
    partition: int
    #: With acks=all and sequences; otherwise plain, with these acks.
    is_idempotent: bool
    acks: int
    batches: int
    #: Virtual seconds between one send and the next, on average.
    mean_pause_s: float
    #: Virtual seconds between a refusal, or no answer, and the next attempt.
    retry_s: float
    #: Age at which a batch is given up, whatever became of it (delivery.timeout.ms).
    delivery_timeout_s: float
    #: Of its own `Random`, so that leaving one client out does not change what the others do.
    seed: int


class GroupPlan(NamedTuple):
    name: str
    #: 0: one that commits from outside.
    members: int
    #: The broker assigns (KIP-848).
    is_assigned: bool
    session_timeout_ms: int
    #: How far each partition is to be committed.
    commits: int
    seed: int


class TransactionalPlan(NamedTuple):
    transactional_id: str
    #: Where its transactions write: topics with a partition. None of them is re-created.
    places: tuple[tuple[TopicPlan, int], ...]
    #: Whose offset its transactions commit: of partition 0 of the first topic; None: they commit none.
    group: str | None
    #: One for each of its producers: transaction.version. All but the first take the id over at some time.
    versions: tuple[int, ...]
    transactions: int
    timeout_ms: int
    #: Virtual seconds between one transaction and the next, on average.
    mean_pause_s: float
    seed: int


class Workload(NamedTuple):
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    groups: tuple[GroupPlan, ...]
    transactional: tuple[TransactionalPlan, ...]
    #: Of what readers, listers and administrators draw.
    seed: int


def workload_of(
    rng: random.Random,
    node_count: int,
    *,
    has_groups: bool | None = None,
    has_transactions: bool | None = None,
) -> Workload:
    """One or two topics of the usual kind, and often one with something special, or one that is compacted; four to six
    producers or so; in every other seed a group or two, in all or none if `has_groups` says so; and so with
    transactional producers."""
    topics = [_topic(rng, "t0", rng.randint(1, 2), 3, is_special=False)]
    if rng.random() < 0.6:
        topics.append(
            _topic(
                rng,
                "t1",
                rng.randint(1, 2),
                rng.choice((1, 3, 5 if node_count == 5 else 3)),
                is_special=False,
            )
        )
    if rng.random() < 0.5:
        topics.append(_topic(rng, "t2", 1, rng.choice((1, 3, 3)), is_special=True))
    producers: list[ProducerPlan] = []
    for topic in topics:
        for partition in range(topic.partitions):
            # The first partition of all always has a producer that never gives up: what is promised to it is the most.
            producers.append(_producer(rng, topic, partition, is_steady=not producers))
            if rng.random() < 0.5:
                producers.append(_producer(rng, topic, partition, is_steady=False))
    seed = rng.getrandbits(64)
    # From a `Random` of its own, and last: what the others do does not depend on whether it is there.
    own_rng = random.Random(seed + 2)
    if own_rng.random() < COMPACTED_SHARE:
        compacted = _compacted_topic(own_rng, "k0", node_count)
        topics.append(compacted)
        producers += [_producer(own_rng, compacted, 0, is_steady=is_steady) for is_steady in (True, False)]
    return Workload(
        tuple(topics),
        tuple(producers),
        _groups(random.Random(seed), topics, has_groups),
        _transactional(random.Random(seed + 1), topics, has_transactions),
        seed,
    )


def _groups(rng: random.Random, topics: list[TopicPlan], has_groups: bool | None) -> tuple[GroupPlan, ...]:
    is_wanted = rng.random() < 0.5
    if not (is_wanted if has_groups is None else has_groups):
        return ()
    partitions = sum(topic.partitions for topic in topics if not topic.is_recreated)
    members = rng.randint(1, 3)
    most = members * MEMBER_OFFSETS // partitions
    groups = [_group(rng, "g0", members, most, is_assigned=rng.random() < 0.5)]
    if rng.random() < 0.5:
        groups.append(_group(rng, "g1", members=0, most_commits=MEMBER_OFFSETS))
    return tuple(groups)


def _group(
    rng: random.Random, name: str, members: int, most_commits: int, *, is_assigned: bool = False
) -> GroupPlan:
    return GroupPlan(
        name,
        members,
        is_assigned,
        rng.choice((300, 1000, 2000)),
        min(rng.randint(10, 30), most_commits),
        rng.getrandbits(64),
    )


def _transactional(
    rng: random.Random, topics: list[TopicPlan], has_transactions: bool | None
) -> tuple[TransactionalPlan, ...]:
    is_wanted = rng.random() < TRANSACTIONAL_SHARE
    if not (is_wanted if has_transactions is None else has_transactions):
        return ()
    places = [
        (topic, number) for topic in topics if not topic.is_recreated for number in range(topic.partitions)
    ]
    return tuple(
        TransactionalPlan(
            f"x{number}",
            tuple(places),
            f"of x{number}" if rng.random() < 0.5 else None,
            tuple(rng.choice((1, 2)) for _ in range(rng.choice((1, 1, 2)))),
            rng.randint(4, 10),
            rng.choice((500, 1000, 3000)),
            rng.choice((0.02, 0.2, 0.5)),
            rng.getrandbits(64),
        )
        for number in range(rng.choice((1, 1, 2)))
    )


def _topic(
    rng: random.Random, name: str, partitions: int, replication_factor: int, *, is_special: bool
) -> TopicPlan:
    """A special one is re-created, purged by clients, or loses what is old or too much. The settings of others may be
    changed, and they may get their second partition later."""
    configs = [
        *_USUAL,
        ("segment.bytes", rng.choice(("1024", "4096", "16384"))),
    ]
    if replication_factor > 1:
        configs.append(("min.insync.replicas", rng.choice(("1", "1", "2", "3"))))
    times_recreated, special = 0, ""
    if is_special:
        special = rng.choice(("re-created", "purged", "purged", "retention.bytes", "retention.ms"))
        if special == "re-created":
            times_recreated = rng.randint(1, 3)
        elif special == "retention.bytes":
            configs.append((special, rng.choice(("1500", "6000"))))
        elif special == "retention.ms":
            configs.append((special, rng.choice(("500", "2000"))))
    times_altered = 0 if is_special else rng.choice((0, 0, 1, 3))
    return TopicPlan(
        name,
        partitions,
        partitions if is_special else rng.randint(1, partitions),
        replication_factor,
        tuple(configs),
        times_recreated,
        is_purged=special == "purged",
        times_altered=times_altered,
    )


def _compacted_topic(rng: random.Random, name: str, node_count: int) -> TopicPlan:
    """Each sealed segment is dirty at once, and they are sealed soon: as much work for compaction as there can be. In
    one of four, retention deletes, too, and often clients. In one of three, new records are left alone for a while."""
    configs = [
        *_USUAL,
        ("cleanup.policy", "compact"),
        ("segment.bytes", rng.choice(("1024", "4096"))),
        ("segment.ms", rng.choice(("200", "500", "2000"))),
        ("delete.retention.ms", rng.choice(("300", "1000", "2000"))),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.insync.replicas", rng.choice(("1", "1", "2"))),
    ]
    is_purged = False
    if rng.random() < 0.25:
        configs[len(_USUAL)] = ("cleanup.policy", "compact,delete")
        configs.append(("retention.bytes", "6000"))
        is_purged = rng.random() < 0.5
    if rng.random() < 0.33:
        configs.append(("min.compaction.lag.ms", rng.choice(("200", "1000"))))
    return TopicPlan(
        name,
        1,
        1,
        rng.choice((3, 3, 5 if node_count == 5 else 3)),
        tuple(configs),
        times_recreated=0,
        is_purged=is_purged,
        times_altered=0,
    )


def _producer(rng: random.Random, topic: TopicPlan, partition: int, *, is_steady: bool) -> ProducerPlan:
    is_idempotent = is_steady or rng.random() < 0.5
    batches = rng.randint(15, 50)
    return ProducerPlan(
        topic,
        partition,
        is_idempotent,
        -1 if is_idempotent else rng.choice((-1, -1, 1, 1, 0)),
        batches,
        rng.uniform(*LASTS_S) / batches,
        rng.choice(RETRIES_S),
        math.inf if is_steady else rng.choice((math.inf, 0.5, 2.0)),
        rng.getrandbits(64),
    )
