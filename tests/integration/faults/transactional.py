"""Clients with transactions, each a process of its own (see client.py): writers, and chains that consume, transform and
produce.

    python -m tests.integration.faults.transactional write NAME BOOTSTRAP TOPIC PARTITIONS SEED HISTORY END_TIMEOUT_S
    python -m tests.integration.faults.transactional chain (the same) GROUP OWN

OWN: the partitions that a chain assigns to itself, as `0,2`, or `subscribe`: the group decides. Both kinds write to the
topic that the chains consume, so that transactions can read from each other. A record's value is a name, the number of
chains that it has come through, and filler. What has come through enough of them is consumed and not produced again.
"""

from __future__ import annotations

import random
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from tests.integration.faults.client import History, Stopped
from tests.integration.faults.group_reader import GroupReader
from tests.integration.faults.producing import (
    TRANSACTION_TIMEOUT_MS,
    Patience,
    ProducerEndedError,
    TransactionalProducer,
)

SUBSCRIBE = "subscribe"
_TRANSACTIONS_PER_S = 10.0
_MAX_RECORDS = 20
_MAX_CHAINS = 2
#: Longer than a transaction may take.
_TOO_LONG_S = TRANSACTION_TIMEOUT_MS / 1000 + 2


@dataclass(frozen=True)
class Client:
    """Who a client is, and where it works."""

    name: str
    bootstrap: str
    topic: str
    partitions: int
    rng: random.Random
    history: History
    patience: Patience


class TransactionalClient(ABC):
    """One transactional id, and one producer after the other that has it."""

    def __init__(self, client: Client, group: str | None = None) -> None:
        self._client = client
        self._rng = client.rng
        self._group = group
        self._lives = 0
        self._successor: TransactionalProducer | None = None
        """Has taken the id over from the present producer."""

    def run(self) -> None:
        while not self._client.patience.is_stopped:
            try:
                producer, self._successor = self._successor or self._new_producer(), None
                try:
                    self._live(producer, time.monotonic() + self._rng.uniform(10, 60))
                finally:
                    producer.drop()
            except ProducerEndedError:
                time.sleep(0.1)

    def _live(self, producer: TransactionalProducer, until: float) -> None:
        """ProducerEndedError."""
        self._begin_life(producer.process)
        while time.monotonic() < until and self._successor is None and not self._client.patience.is_stopped:
            self._one_transaction(producer)

    @abstractmethod
    def _begin_life(self, process: str) -> None: ...

    @abstractmethod
    def _one_transaction(self, producer: TransactionalProducer) -> None:
        """ProducerEndedError."""

    def _new_producer(self) -> TransactionalProducer:
        """It has the id from now on. ProducerEndedError."""
        self._lives += 1
        client = self._client
        producer = TransactionalProducer(
            f"{client.name}.{self._lives}",
            client.bootstrap,
            f"{client.topic}-{client.name}",
            client.topic,
            client.history,
            client.patience,
            self._group,
        )
        producer.start()
        return producer

    def _take_over(self, producer: TransactionalProducer) -> None:
        """In the midst of a transaction of `producer`, which does not know and goes on. ProducerEndedError."""
        producer.flush()
        self._successor = self._new_producer()
        producer.supersede()

    def _send(self, producer: TransactionalProducer, chains: int) -> None:
        partition, key = self._rng.randrange(self._client.partitions), f"k{self._rng.randrange(20)}"
        producer.send(partition, key, f"{chains} {'x' * self._rng.randrange(200)}")


class Writer(TransactionalClient):
    """Writes 1 to 20 records in a transaction, commits most transactions, aborts some, and leaves a few open."""

    def _begin_life(self, process: str) -> None:
        pass

    def _one_transaction(self, producer: TransactionalProducer) -> None:
        rng = self._rng
        time.sleep(rng.expovariate(_TRANSACTIONS_PER_S))
        end = rng.choices(["commit", "commit at once", "abort", "take over", "vanish"], (58, 20, 18, 3, 1))[0]
        producer.begin()
        for _ in range(rng.randint(1, _MAX_RECORDS)):
            self._send(producer, 0)
        if rng.random() < 0.05 or end == "vanish":
            # Others overtake this transaction; at times the coordinator aborts it.
            producer.flush()
            time.sleep(rng.choice([0.2, 0.5, 2.0, _TOO_LONG_S]))
        if end == "vanish":
            raise ProducerEndedError(end)
        if end == "take over":
            self._take_over(producer)
            self._send(producer, 0)
        # An abort is certain only if no commit was asked for before.
        if end == "abort" or (end == "commit" and not producer.flush()):
            producer.abort()
        else:
            producer.commit()


class Chain(TransactionalClient):
    """Consumes records, produces one for each that has not come through enough chains, and commits both together. After
    an abort it goes back to what is committed."""

    def __init__(self, client: Client, reader: GroupReader) -> None:
        super().__init__(client, reader.group)
        self._reader = reader

    def run(self) -> None:
        super().run()
        self._reader.close()

    def _begin_life(self, process: str) -> None:
        self._reader.go_back(process, is_new_member=self._rng.random() < 0.3)

    def _one_transaction(self, producer: TransactionalProducer) -> None:
        rng, reader = self._rng, self._reader
        messages = reader.consume()
        if reader.has_lost_partitions:
            reader.go_back(producer.process)
        elif messages:
            end = rng.choices(
                ["commit", "commit at once", "abort", "take over", "vanish"], (58, 25, 13, 3, 1)
            )[0]
            name = producer.begin()
            self._transform(producer, name, messages)
            for _ in range(rng.randint(0, 2)):
                messages = reader.consume()
                if reader.has_lost_partitions:
                    break
                self._transform(producer, name, messages)
            if not self._end(producer, end):
                reader.go_back(producer.process)

    def _transform(self, producer: TransactionalProducer, transaction: str, messages: list[Message]) -> None:
        if messages:
            self._reader.write(transaction, messages)
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            producer.consume(partition, offset)
            chains = int((message.value() or b"").split(b" ")[1])
            if chains < _MAX_CHAINS:
                self._send(producer, chains + 1)

    def _end(self, producer: TransactionalProducer, end: str) -> bool:
        """Whether the transaction is committed. ProducerEndedError."""
        if self._reader.has_lost_partitions:
            # What was consumed before may be another member's now.
            producer.abort()
            return False
        if end == "take over" and self._rng.random() < 0.5:
            self._take_over(producer)
        if not producer.send_offsets(self._reader.metadata):
            return False
        if end == "take over" and self._successor is None:
            self._take_over(producer)
        if end == "vanish":
            producer.flush()
            time.sleep(self._rng.choice([0, 0, _TOO_LONG_S]))
            raise ProducerEndedError(end)
        if end == "abort" or (end == "commit" and not producer.flush()):
            producer.abort()
            return False
        return producer.commit()


def main(arguments: list[str]) -> None:
    what, name, bootstrap, topic, partitions, seed, path, end_timeout_s, *more = arguments
    with History(Path(path)) as history:
        patience = Patience(Stopped(), float(end_timeout_s))
        client = Client(name, bootstrap, topic, int(partitions), random.Random(seed), history, patience)
        if what == "write":
            Writer(client).run()
            return
        group, own = more
        own_partitions = None if own == SUBSCRIBE else [int(each) for each in own.split(",")]
        Chain(client, GroupReader(bootstrap, group, topic, own_partitions, history)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
