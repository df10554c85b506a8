"""Consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import INT32_MAX, choices, integer, long, setting

_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class GroupKeys:
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        integer(1),
        "50",
        "How many partitions __consumer_offsets is created with. Each group belongs to one of them for ever.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        integer(1, 32767),
        "3",
        """How many replicas __consumer_offsets is created with. Not set: three, or one for each broker if there are
        fewer.""",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        integer(1024),
        str(100 << 20),
        "The segment.bytes that __consumer_offsets is created with.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        integer(0),
        "4096",
        "How many characters of metadata a client may store with a committed offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        integer(1),
        str(7 * 24 * 60),
        "How long offsets are kept while their group is empty or not subscribed to their topic.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        long(1),
        "600000",
        "How often expired offsets are looked for.",
    )

    max_group_bytes: int = setting(
        "varve.max.group.bytes",
        long(0),
        str(48 << 20),
        """How much memory groups and their committed offsets may take on this node. Above it, new members and new
        offsets are refused (GROUP_MAX_SIZE_REACHED, INVALID_COMMIT_OFFSET_SIZE); the members and offsets that are there
        go on. A member counts for 2 KB or more, an offset for 256 bytes and its metadata, a partition that a group of
        the consumer protocol is subscribed to for 400 bytes.""",
    )

    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        integer(0),
        "3000",
        """How long the first rebalance of an empty group waits for more members. At least 50 ms, whatever the
        value.""",
    )
    group_max_size: int = setting(
        "group.max.size",
        integer(1),
        str(INT32_MAX),
        "How many members a group of the classic protocol may have.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        integer(1),
        "6000",
        "The shortest session timeout that a member of a classic group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        integer(1),
        str(30 * _MINUTE_MS),
        "The longest session timeout that a member of a classic group may ask for.",
    )
    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        integer(1),
        "45000",
        "A member of the consumer protocol that has sent no heartbeat for this long is removed from its group.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        integer(1),
        "5000",
        "How often members of the consumer protocol send a heartbeat. They learn of a new assignment from the answer.",
    )
    consumer_group_max_size: int = setting(
        "group.consumer.max.size",
        integer(1),
        str(INT32_MAX),
        "How many members a group of the consumer protocol may have.",
    )
    consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        integer(0),
        "1000",
        "The shortest time between two assignments of a group of the consumer protocol.",
    )
    consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        choices("uniform", "range", may_be_empty=False),
        "uniform,range",
        """The assignors that members of the consumer protocol may ask for. If no assignor has the most votes of a
        group, the first of these wins.""",
    )
    group_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        choices("classic", "consumer"),
        "classic,consumer",
        "The group protocols that this node serves.",
    )
