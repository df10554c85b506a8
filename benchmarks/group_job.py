"""A driver of its own for groups: members join and leave, and how long it takes until all is shared out again.

    python -m benchmarks.group_job groups --bootstrap ... --topic ... --members 50 --partitions 200 --protocol classic

The topic exists. Every member is a confluent-kafka consumer with a thread that polls. A rebalance is over when
every partition has one owner and every member has some; its time is from the first request to leave or join until the
last member was told. `kept_leave` and `kept_join` count the members that never had to give up a partition.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.python_driver.admin import admin
from benchmarks.python_driver.client import JobError, emit

TIMEOUT_S = 60.0
#: Between two rebalances: the members' own business after one is to end outside the next.
QUIET_S = 2.0


class Group:
    """Who owns what, as the members are told."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._changed = threading.Condition()
        self._owned: dict[str, set[int]] = {}
        self._changed_at = 0.0
        #: Members that gave up a partition since `watch`.
        self._disturbed: set[str] = set()

    def assigned(self, member: str, partitions: set[int], *, incremental: bool) -> None:
        with self._changed:
            before = self._owned.get(member, set()) if incremental else set()
            self._owned[member] = before | partitions
            self._note()

    def revoked(self, member: str, partitions: set[int]) -> None:
        with self._changed:
            if member not in self._owned:
                return  # it has left, and is only told now
            self._owned[member] -= partitions
            if partitions:
                self._disturbed.add(member)
            self._note()

    def left(self, member: str) -> None:
        with self._changed:
            self._owned.pop(member, None)
            self._note()

    def _note(self) -> None:
        self._changed_at = time.monotonic()
        self._changed.notify_all()

    def watch(self) -> float:
        """The beginning of a rebalance; now."""
        with self._changed:
            self._disturbed.clear()
            return time.monotonic()

    def undisturbed(self) -> int:
        with self._changed:
            return len(self._owned.keys() - self._disturbed)

    def settled(self, members: int, began: float) -> float:
        """Wait until so many members share everything. Seconds since `began` until the last was told."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_shared(members, began), TIMEOUT_S):
                owned = sorted(len(partitions) for partitions in self._owned.values())
                raise JobError(f"after {TIMEOUT_S:g} s the members own {owned} partitions")
            return self._changed_at - began

    def _is_shared(self, members: int, began: float) -> bool:
        owned = list(self._owned.values())
        return (
            self._changed_at > began
            and len(owned) == members
            and all(owned)
            and sorted(x for partitions in owned for x in partitions) == list(range(self._partitions))
        )


class Member:
    """A consumer and the thread that polls it."""

    def __init__(self, name: str, group: Group, options: argparse.Namespace) -> None:
        self.name = name
        self._group = group
        self._is_leaving = threading.Event()
        #: Members are told what changes, not all that they own.
        self._is_incremental = options.protocol == "consumer" or options.strategy == "cooperative-sticky"
        settings: dict[str, Any] = {
            "bootstrap.servers": options.bootstrap,
            "group.id": f"{options.topic}-group",
            "group.protocol": options.protocol,
            "fetch.wait.max.ms": 5000,
            "log_level": 2,
        }
        if options.protocol == "classic":
            settings |= {
                "heartbeat.interval.ms": options.heartbeat_ms,
                "partition.assignment.strategy": options.strategy,
            }
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            [options.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    # confluent-kafka assigns and unassigns by itself after these.

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        told = {each.partition for each in partitions}
        self._group.assigned(self.name, told, incremental=self._is_incremental)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._group.revoked(self.name, {each.partition for each in partitions})

    def _run(self) -> None:
        while not self._is_leaving.is_set():
            self._consumer.poll(0.5)
        self._group.left(self.name)
        self._consumer.close()

    def leave(self) -> None:
        self._is_leaving.set()

    def wait(self) -> None:
        self._thread.join()


def wait_for_leaders(client: AdminClient, options: argparse.Namespace) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = client.list_topics(options.topic, timeout=10).topics[options.topic].partitions
        if len(found) == options.partitions and all(each.leader >= 0 for each in found.values()):
            return
        if time.monotonic() > deadline:
            raise JobError(f"{options.topic} has not got its leaders")
        time.sleep(0.1)


def run(options: argparse.Namespace) -> None:
    wait_for_leaders(admin(options), options)
    group = Group(options.partitions)
    began = group.watch()
    members = [Member(f"m{number}", group, options) for number in range(options.members)]
    everybody = list(members)
    try:
        start_s = group.settled(len(members), began)
        time.sleep(QUIET_S)
        emit("begin")
        began = group.watch()
        members.pop().leave()
        leave_s, kept_leave = group.settled(len(members), began), group.undisturbed()
        time.sleep(QUIET_S)
        began = group.watch()
        members.append(Member("newcomer", group, options))
        everybody.append(members[-1])
        join_s, kept_join = group.settled(len(members), began), group.undisturbed()
        emit("end")
    finally:
        for member in everybody:
            member.leave()
        for member in everybody:
            member.wait()
    emit(
        "result",
        start_s=start_s,
        leave_s=leave_s,
        join_s=join_s,
        kept_leave=kept_leave,
        kept_join=kept_join,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="group_job")
    parser.add_argument("job", choices=["groups"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--strategy", default="range,roundrobin")
    parser.add_argument("--heartbeat-ms", type=int, default=500)
    try:
        run(parser.parse_args())
    except (JobError, KafkaException) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
