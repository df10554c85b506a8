"""A consumer of a group that writes down what it gets. Its offsets are committed by the transactions of a producer."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

from tests.integration.faults.client import SETTINGS, History, as_record


class GroupReader:
    """Reads what is committed, from the group's offsets on. `go_back` first."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, own_partitions: list[int] | None, history: History
    ) -> None:
        """`own_partitions`: those that it assigns to itself. None: the group decides."""
        self.group = group
        self.metadata: object = None
        """As which member of the group, and of which generation, the partitions were got."""
        self.has_lost_partitions = False
        """Since `go_back` the group has taken partitions away: nothing that was consumed may be committed."""
        self._topic = topic
        self._own_partitions = own_partitions
        self._history = history
        self._process = ""
        self._assignment = 0
        self._partitions: list[int] = []
        self._consumer: Consumer | None = None
        self._settings = {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        }

    def go_back(self, process: str, *, is_new_member: bool = False) -> None:
        """To the offsets that are committed, by this process's name from now on. `is_new_member`: it leaves the group
        first, and joins anew."""
        self._process = process
        if self._consumer is None or is_new_member:
            self.close()
            self._consumer = Consumer(self._settings)
            self._partitions = self._own_partitions or []
            if self._own_partitions is None:
                self._consumer.subscribe(
                    [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
                )
            else:
                self.metadata = self._consumer.consumer_group_metadata()
        self.has_lost_partitions = False
        if self._partitions:
            self._assign(self._consumer)

    def consume(self) -> list[Message]:
        """Some records, perhaps none. Void if partitions were lost meanwhile."""
        assert self._consumer is not None
        messages = []
        for message in self._consumer.consume(50, 0.2):
            if (error := message.error()) is None:
                messages.append(message)
            else:
                self._history.write(op="note", process=self._process, error=error.name(), what=error.str())
        return messages

    def write(self, transaction: str, messages: list[Message]) -> None:
        """These were consumed in this transaction."""
        self._history.write(
            op="poll",
            process=self._process,
            assignment=self._assignment,
            txn=transaction,
            records=[as_record(self._topic, message) for message in messages],
        )

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._partitions = [each.partition for each in partitions]
        # Not later: what a member commits for an earlier generation has to be refused.
        self.metadata = consumer.consumer_group_metadata()
        self._assign(consumer)

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self.has_lost_partitions = True
        self._partitions = []
        consumer.unassign()

    def _assign(self, consumer: Consumer) -> None:
        """Without offsets: librdkafka asks the group for them, and waits for those of open transactions."""
        self._assignment += 1
        self._history.write(
            op="assign",
            process=self._process,
            assignment=self._assignment,
            partitions=[[self._topic, partition, None] for partition in self._partitions],
        )
        consumer.assign([TopicPartition(self._topic, partition) for partition in self._partitions])
