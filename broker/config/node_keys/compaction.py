"""The worker that compacts logs, and the comparison of replicas. What is compacted, and when, is set for topics."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from broker.config.values import INT32_MAX, boolean, integer, long, number, setting


@dataclass(frozen=True, kw_only=True)
class CompactionKeys:
    cleaner_enable: bool = setting(
        "log.cleaner.enable", boolean, "true", "Whether topics with cleanup.policy compact are compacted."
    )
    cleaner_threads: int = setting(
        "log.cleaner.threads",
        integer(1, 64),
        "1",
        "How many logs are compacted at the same time, each by a process of its own.",
        dynamic=True,
    )
    cleaner_dedupe_buffer_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size",
        long(1 << 10),
        str(128 << 20),
        """How much memory the key maps of all cleaners may take: 24 bytes for a key, and a tenth stays free. A log with
        more keys than one map holds is compacted in several passes.""",
        dynamic=True,
    )
    cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        number(1, sys.float_info.max),
        "1.7976931348623157E308",
        "How many bytes a cleaner may read and write per second.",
        dynamic=True,
    )
    cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        long(0),
        "15000",
        "How long a log that could not be compacted is left alone. Doubled with each failure, up to an hour.",
        dynamic=True,
    )
    compaction_interval_ms: int = setting(
        "varve.compaction.interval.ms",
        integer(1, INT32_MAX),
        "300000",
        "How often the worker looks for logs that are to be compacted.",
    )
    compaction_initial_delay_ms: int = setting(
        "varve.compaction.initial.delay.ms",
        integer(0, INT32_MAX),
        "60000",
        "When it looks for the first time after a start.",
    )
    compaction_max_pin_ms: int = setting(
        "varve.compaction.max.pin.ms",
        long(-1),
        "-1",
        """How long a replica that is away may keep tombstones and transaction markers from going. Then it is left out
        of its partition, and copies all of it anew when it is back. -1: as long as it is away.""",
        dynamic=True,
    )
    uncoordinated_compaction: bool = setting(
        "varve.unsafe.uncoordinated.compaction",
        boolean,
        "false",
        """For `varve demo divergence` only. true: this node removes tombstones and transaction markers as soon as its
        own replica allows it, without asking the others, as Apache Kafka does. Replicas then differ for ever: deleted
        keys come back, and aborted records are read as committed. Only `varve start --override` can set it, and only on
        a node with all listeners on localhost.""",
    )
    verify_interval_ms: int = setting(
        "varve.verify.interval.ms",
        integer(0, INT32_MAX),
        "21600000",
        """How often a leader compares each of its partitions with the other replicas, in the background. They are
        compared one after the other, spread over this time. 0: never.""",
        dynamic=True,
    )
    verify_io_max_bytes_per_second: float = setting(
        "varve.verify.io.max.bytes.per.second",
        number(1, sys.float_info.max),
        "8388608",
        "How many bytes a comparison in the background may read per second, on each node.",
        dynamic=True,
    )
