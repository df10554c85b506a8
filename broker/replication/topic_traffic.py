"""How much of each topic was produced and fetched on this node: numbers for `broker.metrics`."""

from __future__ import annotations

from weakref import WeakValueDictionary


class TopicTraffic:
    """Of one topic. All numbers only rise."""

    __slots__ = ("__weakref__", "fetched_bytes", "produced_bytes", "produced_records")

    def __init__(self) -> None:
        #: Appended by this node as the leader, for clients and coordinators. Markers of transactions do not count.
        self.produced_records = 0
        self.produced_bytes = 0
        #: Answered to clients.
        self.fetched_bytes = 0


class TrafficByTopic:
    """The replicas of a topic share their traffic: a partition that moves away takes nothing from the sum. It is
    forgotten with the last of them."""

    def __init__(self) -> None:
        self._topics: WeakValueDictionary[str, TopicTraffic] = WeakValueDictionary()

    def of(self, topic: str) -> TopicTraffic:
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = TopicTraffic()
        return traffic
