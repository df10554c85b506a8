"""An application that copies a topic, to be killed in the middle: run by the idempotence experiment as a process.

    python -m pipeline.lab.copier BOOTSTRAP INPUT OUTPUT INTERVAL [TRANSACTIONAL_ID]

It goes on from the position that it last stored, and stores one after each INTERVAL records: in the transaction that
writes them where it has a transactional id, after them where it has none. It prints how many records of the input are
acknowledged so far, every few records, and ends at the end of the input.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

_TIMEOUT_S = 30.0
_TELL_EVERY = 10


class Copier:
    def __init__(
        self, bootstrap: str, source: str, target: str, interval: int, transactional_id: str
    ) -> None:
        self._target = target
        self._interval = interval
        self._is_transactional = bool(transactional_id)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{target}-copier",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
        }
        if transactional_id:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        self._place = TopicPartition(source, 0)

    def run(self) -> None:
        if self._is_transactional:
            # Ends what a predecessor of the same id left open, and fences it.
            self._producer.init_transactions(_TIMEOUT_S)
        (stored,) = self._consumer.committed([self._place], _TIMEOUT_S)
        position = max(0, stored.offset)
        self._consumer.assign([TopicPartition(self._place.topic, 0, position)])
        is_open = False
        while (message := self._next()) is not None:
            if self._is_transactional and not is_open:
                self._producer.begin_transaction()
            is_open = True
            self._producer.produce(self._target, message, partition=0)
            position += 1
            if position % _TELL_EVERY == 0:
                self._await_acknowledgements()
                print(position, flush=True)
            if position % self._interval == 0:
                self._store(position)
                is_open = False
        if is_open:
            self._store(position)
        self._consumer.close()

    def _next(self) -> bytes | None:
        """The value of the next record; None at the end of the input."""
        message = self._consumer.poll(_TIMEOUT_S)
        if message is None:
            raise SystemExit(f"nothing came from {self._place.topic} for {_TIMEOUT_S:.0f} s")
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            raise SystemExit(f"{self._place.topic} cannot be read: {error.str()}")
        return message.value()

    def _store(self, position: int) -> None:
        stored = [TopicPartition(self._place.topic, 0, position)]
        if self._is_transactional:
            self._producer.send_offsets_to_transaction(
                stored, self._consumer.consumer_group_metadata(), _TIMEOUT_S
            )
            self._producer.commit_transaction(_TIMEOUT_S)
            return
        self._await_acknowledgements()
        self._consumer.commit(offsets=stored, asynchronous=False)

    def _await_acknowledgements(self) -> None:
        if left := self._producer.flush(_TIMEOUT_S):
            raise SystemExit(f"{left} records are not acknowledged after {_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    bootstrap, source, target, interval, *rest = sys.argv[1:]
    Copier(bootstrap, source, target, int(interval), rest[0] if rest else "").run()
