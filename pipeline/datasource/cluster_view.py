"""What the driver asks the cluster: which partitions there are, where they begin and end. An AdminClient, no group."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from pipeline.datasource.errors import ClusterUnavailable, InvalidOption
from pipeline.datasource.offsets import OffsetMap, Place
from pipeline.datasource.options import ReadOptions

_T = TypeVar("_T")
_ATTEMPT_TIMEOUT_S = 10.0
# Longer than a fail-over takes, so that one in the middle of a trigger is not the end of the query.
_TIMEOUT_S = 60.0
_RETRY_WAIT_S = 0.25


class Partitions:
    """The partitions to read at the moment, and the ids of their topics."""

    def __init__(self, places: Iterable[Place], topic_ids: Mapping[str, str]) -> None:
        self.places = frozenset(places)
        self.topic_ids = dict(topic_ids)


class ClusterView:
    """All methods raise ClusterUnavailable where no usable answer comes within a minute."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._isolation = (
            IsolationLevel.READ_COMMITTED if options.reads_committed else IsolationLevel.READ_UNCOMMITTED
        )
        self.admin: AdminClient = checked_client(AdminClient, {**QUIET, **options.client_config})

    def partitions(self) -> Partitions:
        """Those that the options ask for and that exist. A topic that does not exist is just not there."""
        options = self._options
        if options.pattern is not None:
            found = self._retried(
                "the list of topics", lambda: self.admin.list_topics(timeout=_ATTEMPT_TIMEOUT_S)
            )
            names = [name for name in found.topics if re.fullmatch(options.pattern, name)]
        elif options.places is not None:
            names = sorted({topic for topic, _ in options.places})
        else:
            names = list(options.topics or ())
        descriptions = self._retried("the topics", lambda: self._describe(names)) if names else []
        if options.pattern is not None:
            descriptions = [each for each in descriptions if not each.is_internal]
        existing = {(each.name, partition.id) for each in descriptions for partition in each.partitions}
        places = existing if options.places is None else existing & set(options.places)
        return Partitions(places, {each.name: str(each.topic_id) for each in descriptions})

    def earliest(self, places: Iterable[Place]) -> OffsetMap:
        return self._offsets({place: OffsetSpec.earliest() for place in places})

    def latest(self, places: Iterable[Place]) -> OffsetMap:
        """The high watermark; with read_committed the end of what is decided (LSO)."""
        return self._offsets({place: OffsetSpec.latest() for place in places})

    def at_timestamps(self, timestamps_ms: OffsetMap) -> OffsetMap:
        """The first offset whose record is not older; -1 where there is none."""
        return self._offsets(
            {place: OffsetSpec.for_timestamp(time_ms) for place, time_ms in timestamps_ms.items()}
        )

    def compacted_only(self, topics: Iterable[str]) -> list[str]:
        """Those whose cleanup.policy has compact and not delete: a broker refuses DeleteRecords for them."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return []

        def ask() -> list[str]:
            answers = self.admin.describe_configs(resources, request_timeout=_ATTEMPT_TIMEOUT_S)
            configs = {resource.name: future.result() for resource, future in answers.items()}
            policies = {topic: str(config["cleanup.policy"].value) for topic, config in configs.items()}
            return sorted(topic for topic, policy in policies.items() if "delete" not in policy)

        return self._retried("the topics' settings", ask)

    def _describe(self, names: list[str]) -> list[Any]:
        answers = self.admin.describe_topics(TopicCollection(names), request_timeout=_ATTEMPT_TIMEOUT_S)
        descriptions = []
        for future in answers.values():
            try:
                descriptions.append(future.result())
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return descriptions

    def _offsets(self, specs: dict[Place, OffsetSpec]) -> OffsetMap:
        if not specs:
            return {}
        request = {TopicPartition(*place): spec for place, spec in specs.items()}

        def ask() -> OffsetMap:
            answers = self.admin.list_offsets(
                request, isolation_level=self._isolation, request_timeout=_ATTEMPT_TIMEOUT_S
            )
            return {
                (asked.topic, asked.partition): future.result().offset for asked, future in answers.items()
            }

        return self._retried("the partitions' offsets", ask)

    def _retried(self, what: str, ask: Callable[[], _T]) -> _T:
        """Ask again while leaders are being replaced or nobody answers."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                lasting = error.args[0].code() in _LASTING
                if lasting or time.monotonic() > deadline:
                    servers = self._options.client_config["bootstrap.servers"]
                    raise ClusterUnavailable(f"{servers} does not tell {what}: {error.args[0]}") from error
                logger().info("asking again for %s: %s", what, error.args[0])
            time.sleep(_RETRY_WAIT_S)


# Nothing that time would mend.
_LASTING = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
}
QUIET: dict[str, Any] = {
    "client.id": "varve-spark",
    # Brokers that are gone are no news: what matters comes back as an error.
    "log_level": 2,
    "reconnect.backoff.max.ms": 1_000,
}


def checked_client(make: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """The client; raises InvalidOption where librdkafka does not know or does not take one of the settings."""
    try:
        return make(config)
    except KafkaException as error:
        raise InvalidOption(
            f"{error.args[0].str()}: options kafka.* have the names and values of librdkafka"
            " (CONFIGURATION.md there), which are not always those of Java's client"
        ) from error


def logger() -> logging.Logger:
    """Lines of the driver and of the tasks, on stderr of Spark's Python workers, which nobody else configures."""
    log = logging.getLogger("varve.spark")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    return log
