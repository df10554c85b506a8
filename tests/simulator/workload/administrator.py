"""An administrator who changes the settings of a topic, and gives it more partitions, while others use it.

What is acknowledged is seen at once by who asks the same broker again. A change whose answer was lost may come later
than the ones after it: the broker that took it goes on asking the controller.
"""

from __future__ import annotations

import asyncio
import random

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.simulator.client import Client, Connection
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.oracle import Oracle
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

ALTER_VERSION, DESCRIBE_VERSION, CREATE_PARTITIONS_VERSION = 1, 4, 3
#: Virtual seconds between two changes, on average.
MEAN_PAUSE_S = 0.7
_TOPIC = 2
_SET, _DELETE = 0, 1

#: What is changed, and to what; None: back to the default.
_VALUES: dict[str, tuple[str | None, ...]] = {
    "segment.bytes": ("1024", "4096", "16384"),
    "retention.bytes": ("3000", "12000", "-1", None),
    "min.insync.replicas": ("1", "2", "3", None),
}


class Administrator:
    """Of one topic that stays. `check` it at the end."""

    def __init__(self, client: Client, oracle: Oracle, plan: TopicPlan, seed: int) -> None:
        self._client = client
        self._oracle = oracle
        self._plan = plan
        self._rng = random.Random(seed)
        #: By setting: what was acknowledged last, and what may have taken effect at any time since.
        self._acknowledged: dict[str, str | None] = dict(plan.configs)
        self._doubtful: dict[str, list[str | None]] = {}

    async def run(self) -> None:
        for _ in range(self._plan.times_altered):
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_PAUSE_S))
            names = (
                list(_VALUES) if self._plan.replication_factor > 1 else ["segment.bytes", "retention.bytes"]
            )
            name = self._rng.choice(names)
            await self._alter(name, self._rng.choice(_VALUES[name]))
        if self._plan.partitions_at_first < self._plan.partitions:
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_PAUSE_S))
            await self._add_partitions()

    async def _alter(self, name: str, value: str | None) -> None:
        """Until it is acknowledged."""
        if name == "retention.bytes":
            self._oracle.deletions.retained(self._plan.name)
        change = AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=self._plan.name, configs=[change])
        body = IncrementalAlterConfigsRequest(resources=[resource])
        while True:
            try:
                connection = await self._client.any_broker()
                answer = await connection.request(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, body, IncrementalAlterConfigsResponse
                )
                code = ErrorCode(answer.responses[0].error_code)
                if code is ErrorCode.NONE:
                    self._acknowledged[name] = value
                    await self._look(connection, name)
                    return
                assert code in RETRIABLE, (code, answer.responses[0].error_message)
            except (OSError, TimeoutError):
                pass
            self._doubtful.setdefault(name, []).append(value)
            await asyncio.sleep(RETRY_S)

    async def _look(self, connection: Connection, name: str) -> None:
        """The broker that has just acknowledged it shows it. Raises OSError, TimeoutError."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=self._plan.name, configuration_keys=[name]
        )
        answer = await connection.request(
            ApiKey.DESCRIBE_CONFIGS,
            DESCRIBE_VERSION,
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
        )
        (row,) = answer.results[0].configs
        self._check_value(name, row.value if row.config_source == 1 else None)

    def _check_value(self, name: str, shown: str | None) -> None:
        allowed = [self._acknowledged.get(name), *self._doubtful.get(name, ())]
        assert shown in allowed, f"{self._plan.name} has {name}={shown}, acknowledged was one of {allowed}"

    async def _add_partitions(self) -> None:
        """Until they are there: answers get lost, and then there are as many already."""
        topic = CreatePartitionsTopic(name=self._plan.name, count=self._plan.partitions)
        body = CreatePartitionsRequest(topics=[topic])
        while True:
            try:
                connection = await self._client.any_broker()
                answer = await connection.request(
                    ApiKey.CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION, body, CreatePartitionsResponse
                )
                code = ErrorCode(answer.results[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
                    return
                assert code in RETRIABLE, (code, answer.results[0].error_message)
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    def check(self, cluster: SimulatedCluster) -> None:
        """Once all is done, and everybody has heard: what was acknowledged is so on every node, and every replica
        goes by it."""
        for node in cluster.nodes.values():
            topic = node.metadata.image.topic_named(self._plan.name)
            assert topic is not None and len(topic.partitions) == self._plan.partitions
            for name in _VALUES:
                self._check_value(name, topic.configs.get(name))
            for replica in node.replicas.by_name.values():
                if replica.topic == topic.name and "segment.bytes" in topic.configs:
                    assert str(replica.log.config.segment_bytes) == topic.configs["segment.bytes"]
                    assert replica.config.min_insync_replicas == replica.group.min_durable
