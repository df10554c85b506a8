"""All metrics of a node: name, labels, meaning. docs/monitoring.md shows this list.

A metric that exporters of Apache Kafka have made known (the usual rules of the JMX exporter, and kafka_exporter) has
its name there as a second name, so that dashboards for Kafka show something. Where they have no such number, or mean
something else, there is none.

Labels have few values. A label names a topic, a partition, a node, an API or one of a few words, never a client or a
transactional id. Groups are named by clients, so their number has a bound (`coordinators.MAX_OFFSETS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial


class Kind(Enum):
    COUNTER = "counter"
    """Only rises, and begins anew with 0 when the node is started. Its name ends with `_total`."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Seconds. Its series are NAME_bucket, NAME_sum and NAME_count."""


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    kafka_name: str = ""
    """The second name."""
    kafka_labels: Mapping[str, str] = field(default_factory=dict)
    """Label -> its name there, if it differs."""


#: By name, in the order in which they are shown.
CATALOGUE: dict[str, Definition] = {}


def _define(
    kind: Kind,
    name: str,
    meaning: str,
    *labels: str,
    kafka: str = "",
    kafka_labels: Mapping[str, str] | None = None,
) -> Definition:
    assert (kind is Kind.COUNTER) == name.endswith("_total"), name
    assert name not in CATALOGUE, name
    made = Definition(name, kind, " ".join(meaning.split()), labels, kafka, kafka_labels or {})
    CATALOGUE[name] = made
    return made


_gauge = partial(_define, Kind.GAUGE)
_counter = partial(_define, Kind.COUNTER)
_histogram = partial(_define, Kind.HISTOGRAM)


# -- the node ----------------------------------------------------------------------------------------------

NODE_INFO = _gauge("varve_node_info", "Always 1: which node and which version this is.", "node_id", "version")
NODE_READY = _gauge("varve_node_ready", "1 while the node serves clients, else 0. As /readyz.")
BROKERS = _gauge(
    "varve_brokers",
    "Registered brokers, as this node sees them: `connected` (itself included) or `away`.",
    "state",
)
CONTROLLER_ACTIVE = _gauge(
    "varve_controller_active",
    "1 on the node that leads the cluster's metadata, 0 on the others. 0 on all for long: there is no quorum.",
    kafka="kafka_controller_kafkacontroller_activecontrollercount",
)
LOOP_STALL = _histogram(
    "varve_loop_stall_seconds", "By how much a timer of 50 ms was late: how long the event loop was busy."
)
LOOP_STALL_LONGEST = _gauge(
    "varve_loop_stall_longest_seconds", "The longest delay of that timer in the last minute, or in up to two."
)
FLUSH = _histogram(
    "varve_flush_duration_seconds",
    "Time of a flush round: the journal and every log that grew are on disk, and what waits for that can be answered.",
)
DISK_FREE = _gauge("varve_disk_free_bytes", "Free on the volume of the data directory.")
DISK_SIZE = _gauge("varve_disk_size_bytes", "Size of the volume of the data directory.")
DISK_LOW = _gauge(
    "varve_disk_low", "1 while less than log.min.free.bytes is free: produce requests are refused."
)

# -- clients -----------------------------------------------------------------------------------------------

REQUESTS = _histogram(
    "varve_request_duration_seconds",
    """Requests of clients by API: from the moment a request is begun until its answer is passed to the socket. A fetch
    that waits for records is as long as it waits.""",
    "api",
)
REQUEST_COUNT = _counter(
    "varve_requests_total",
    "Answered requests of clients by API.",
    "api",
    kafka="kafka_network_requestmetrics_requests_total",
    kafka_labels={"api": "request"},
)
RECEIVED = _counter("varve_received_bytes_total", "Received from clients, all requests.")
SENT = _counter("varve_sent_bytes_total", "Answers passed to the sockets of clients.")
CONNECTIONS = _gauge("varve_connections", "Open connections of clients.")
ACCEPTED = _counter("varve_connections_accepted_total", "Connections of clients, refused ones included.")
REFUSED = _counter(
    "varve_connections_refused_total",
    "Connections that were closed at once: max.connections, max.connections.per.ip.",
)
THROTTLES = _counter(
    "varve_quota_throttles_total", "How often a client was throttled, by the kind of quota.", "quota"
)
THROTTLE_TIME = _counter(
    "varve_quota_throttle_seconds_total", "For how long clients were throttled, all together.", "quota"
)

# -- partitions --------------------------------------------------------------------------------------------

PARTITIONS = _gauge(
    "varve_partitions",
    "Replicas on this node, without the metadata log.",
    kafka="kafka_server_replicamanager_partitioncount",
)
LED = _gauge(
    "varve_partitions_led",
    "Partitions that this node leads.",
    kafka="kafka_server_replicamanager_leadercount",
)
UNDER_REPLICATED = _gauge(
    "varve_partitions_under_replicated",
    "Partitions that this node leads, with fewer replicas in sync than the metadata assigns.",
    kafka="kafka_server_replicamanager_underreplicatedpartitions",
)
UNDER_MIN_ISR = _gauge(
    "varve_partitions_under_min_isr",
    "Partitions that this node leads, with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
    kafka="kafka_server_replicamanager_underminisrpartitioncount",
)
OFFLINE = _gauge(
    "varve_partitions_offline",
    "Partitions of the cluster that no live broker leads. The controller counts them; 0 on the other nodes.",
    kafka="kafka_controller_kafkacontroller_offlinepartitionscount",
)
LEADER_CHANGES = _counter(
    "varve_leader_changes_total", "How often this node has begun to lead a partition. Starts are among them."
)
PARTITION_BYTES = _gauge(
    "varve_partition_bytes",
    "Size of the log of a replica on this node, without indexes.",
    "topic",
    "partition",
    kafka="kafka_log_log_size",
)
TOPIC_BYTES = _gauge(
    "varve_topic_bytes",
    "Size of the logs of a topic on this node, by the topic's cleanup.policy.",
    "topic",
    "cleanup",
)
LOG_START = _gauge(
    "varve_partition_log_start_offset",
    "The first offset that can be read. From the leader.",
    "topic",
    "partition",
    kafka="kafka_log_log_logstartoffset",
)
LOG_END = _gauge(
    "varve_partition_log_end_offset",
    "One past the last offset. From the leader.",
    "topic",
    "partition",
    kafka="kafka_log_log_logendoffset",
)
HIGH_WATERMARK = _gauge(
    "varve_partition_high_watermark",
    "Below it, records are on a majority and can be read. From the leader.",
    "topic",
    "partition",
    kafka="kafka_topic_partition_current_offset",
)
LAST_STABLE = _gauge(
    "varve_partition_last_stable_offset",
    "Readers of committed data stop here: the first open transaction begins there. From the leader.",
    "topic",
    "partition",
)
IN_SYNC = _gauge(
    "varve_partition_replicas_in_sync",
    "Replicas that keep up. From the leader.",
    "topic",
    "partition",
    kafka="kafka_topic_partition_in_sync_replica",
)
ASSIGNED = _gauge(
    "varve_partition_replicas",
    "Replicas that the metadata assigns. From the leader.",
    "topic",
    "partition",
    kafka="kafka_topic_partition_replicas",
)
FOLLOWER_LAG = _gauge(
    "varve_follower_lag_records",
    "Offsets that the leader has and a follower has not confirmed as flushed. `follower` is a node id.",
    "topic",
    "partition",
    "follower",
)
COMPARISONS = _counter(
    "varve_replica_comparisons_total",
    """Comparisons of the replicas of a partition that this node led: `equal`; `different`; `incomplete`, where none
    differed but some could not be compared; `failed`, where none could.""",
    "result",
)
MISMATCHES = _counter(
    "varve_replica_mismatches_total",
    "How often a replica was found to differ from the leader's. The log says which, and where. From the leader.",
    "topic",
    "partition",
)
PRODUCED_RECORDS = _counter(
    "varve_topic_produced_records_total",
    "Records that this node has appended as the leader.",
    "topic",
    kafka="kafka_server_brokertopicmetrics_messagesin_total",
)
PRODUCED_BYTES = _counter(
    "varve_topic_produced_bytes_total",
    "Bytes of the batches that this node has appended as the leader, compressed as they came.",
    "topic",
    kafka="kafka_server_brokertopicmetrics_bytesin_total",
)
FETCHED_BYTES = _counter(
    "varve_topic_fetched_bytes_total",
    "Bytes of the batches that this node has answered to clients.",
    "topic",
    kafka="kafka_server_brokertopicmetrics_bytesout_total",
)

# -- groups and transactions -------------------------------------------------------------------------------

GROUPS = _gauge(
    "varve_groups",
    "Groups with members, or that had some, coordinated by this node: by protocol and state.",
    "protocol",
    "state",
)
GROUP_OFFSET = _gauge(
    "varve_group_committed_offset",
    "The committed offset of a group. From its coordinator.",
    "group",
    "topic",
    "partition",
    kafka="kafka_consumergroup_current_offset",
    kafka_labels={"group": "consumergroup"},
)
GROUP_LAG = _gauge(
    "varve_group_lag_records",
    """Offsets between the committed one and the high watermark. From the group's coordinator, where it has a replica of
    the partition; a follower's high watermark is some 50 ms old.""",
    "group",
    "topic",
    "partition",
    kafka="kafka_consumergroup_lag",
    kafka_labels={"group": "consumergroup"},
)
GROUP_OFFSETS_LEFT_OUT = _gauge(
    "varve_group_offsets_left_out",
    """Committed offsets that the metrics of groups do not show: more than 10,000 on this node, or of a group whose name
    has more than 255 characters.""",
)
TRANSACTIONS = _gauge(
    "varve_transactions",
    """Transactions whose coordinator this node is: `open`, or `ending` while markers are being written.""",
    "state",
)
TRANSACTION_AGE = _gauge(
    "varve_transaction_oldest_age_seconds",
    "For how long the oldest open transaction whose coordinator this node is has been open. 0: there is none.",
)

# -- compaction --------------------------------------------------------------------------------------------

COMPACTIONS = _counter("varve_log_cleaner_compactions_total", "Passes of compaction that came to an end.")
CLEANED = _counter(
    "varve_log_cleaner_cleaned_bytes_total", "By how much passes of compaction have made logs smaller."
)
COMPACTION_FAILURES = _counter(
    "varve_log_cleaner_failures_total", "Passes of compaction that failed. They are tried again, ever later."
)
COMPACTION_TIME = _histogram(
    "varve_log_cleaner_duration_seconds", "Time of a pass of compaction over one log."
)
DIRTY_RATIO = _gauge(
    "varve_log_cleaner_dirty_ratio",
    "Part of a log on this node that the next pass would clean. One is due above min.cleanable.dirty.ratio.",
    "topic",
    "partition",
)
LAST_COMPACTED = _gauge(
    "varve_log_cleaner_last_compacted_timestamp_seconds",
    "When the last pass over a log on this node ended, as Unix time. Without a pass there is no value.",
    "topic",
    "partition",
)
UNCLEANABLE = _gauge(
    "varve_log_cleaner_uncleanable",
    "1 while the last pass over a log on this node failed, else 0. The node's log says why.",
    "topic",
    "partition",
)
UNCLEANABLE_PARTITIONS = _gauge(
    "varve_log_cleaner_uncleanable_partitions",
    "Logs on this node whose last pass failed.",
    kafka="kafka_log_logcleanermanager_uncleanable_partitions_count",
)
UNCLEANABLE_BYTES = _gauge(
    "varve_log_cleaner_uncleanable_bytes",
    "Size of the logs on this node whose last pass failed.",
    kafka="kafka_log_logcleanermanager_uncleanable_bytes",
)
DELETE_RETENTION = _gauge(
    "varve_topic_delete_retention_seconds",
    "delete.retention.ms of a compacted topic, in seconds: for so long readers see that a key was deleted.",
    "topic",
)
HELD_RECORDS = _gauge(
    "varve_compaction_held_records",
    """Tombstones, transaction markers and their remnants in a log on this node, by `kind`, that were old enough to go
    when the last pass began. A bound keeps them, because some replica still needs them.""",
    "topic",
    "partition",
    "kind",
)
HELD_BYTES = _gauge(
    "varve_compaction_held_bytes",
    "Size of these held records, tombstones without compression.",
    "topic",
    "partition",
    "kind",
)
PENDING_RECORDS = _gauge(
    "varve_compaction_pending_records",
    "Tombstones, transaction markers and their remnants that the last pass left, held or not yet old enough to go.",
    "topic",
    "partition",
    "kind",
)
MTRO = _gauge(
    "varve_compaction_mtro_offset",
    "Max tombstone remove offset: tombstones below may go on every replica. From the leader.",
    "topic",
    "partition",
)
MXRO = _gauge(
    "varve_compaction_mxro_offset",
    "Max transaction remove offset: transaction markers below may go on every replica. From the leader.",
    "topic",
    "partition",
)
MCCO = _gauge(
    "varve_compaction_mcco_offset",
    "Max cleanly compacted offset of a member of the partition, `replica` by node id, as the leader knows it.",
    "topic",
    "partition",
    "replica",
)
MXFO = _gauge(
    "varve_compaction_mxfo_offset",
    "Max transaction-free offset of a member of the partition, as the leader knows it.",
    "topic",
    "partition",
    "replica",
)
PINNED = _gauge(
    "varve_compaction_pinned_seconds",
    """For how long a member has kept a bound from rising, `tombstones` (MTRO) or `markers` (MXRO), and why it is not
    clean further: `offline`, `behind`, `dirty_ratio`, ... A new leader begins with 0.""",
    "topic",
    "partition",
    "replica",
    "bound",
    "reason",
)
