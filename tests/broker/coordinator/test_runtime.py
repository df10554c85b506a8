"""The promises of the runtime to every coordinator, tested with registers.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.coordinator import decisions, loading, outcome
from broker.scheduling import background
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_BYTES, renew_crc
from protocol.records.builder import NewRecord, build_batch
from tests.broker.coordinator.registers import PARTITIONS, TOPIC, RegisterWorld
from tests.broker.groups.world import FEW, commit, commit_request, committed, pass_time
from tests.broker.groups.world import coordinator as group_coordinator
from tests.broker.world import running

NAME = "a"


@contextmanager
def registers(size: int = 3, lifetime_s: float = 1000.0) -> Iterator[tuple[RegisterWorld, int, int]]:
    """A cluster with the coordinator, the partition of NAME, and the node that leads it."""
    with running(size=size, settings=FEW) as world:
        cluster = RegisterWorld(world, lifetime_s)
        cluster.create_topic()
        partition = next(iter(cluster.nodes.values())).topic.partition_of(NAME)
        yield cluster, partition, cluster.coordinator(partition)


def names_of(cluster: RegisterWorld, node_id: int, partition: int, count: int) -> list[str]:
    """Names that have this partition."""
    topic = cluster.nodes[node_id].topic
    names = (f"r{number}" for number in range(count * 100))
    return [name for name in names if topic.partition_of(name) == partition][:count]


def cut_off(cluster: RegisterWorld, node_id: int) -> None:
    """Cut a node off from the other nodes, in both directions."""
    world = cluster.world
    others = [f"n{other}" for other in world.ids if other != node_id]
    world.network.partition([f"n{node_id}"], others)


# -- deciding ----------------------------------------------------------------------------------------------


def test_a_decision_is_replayed_at_once_and_answered_when_a_majority_has_it() -> None:
    with registers() as (cluster, _, node_id):
        cut_off(cluster, node_id)
        answers = cluster.begin_add(node_id, NAME, 5)
        assert cluster.shard(node_id, NAME).values == {NAME: 5}, "the next decision sees it"
        cluster.world.loop.run_for(0.1)
        assert answers == []
        cluster.world.network.heal_all()
        assert cluster.answer(answers) == 5


def test_a_refusal_waits_for_what_it_saw() -> None:
    """It says that the sum is too small. That depends on the first decision, which is not committed yet."""
    with registers() as (cluster, _, node_id):
        cut_off(cluster, node_id)
        first, refused = cluster.begin_add(node_id, NAME, 5), cluster.begin_add(node_id, NAME, -6)
        cluster.world.loop.run_for(0.1)
        assert (first, refused) == ([], [])
        cluster.world.network.heal_all()
        assert cluster.answer(refused) is ErrorCode.INVALID_REQUEST
        assert first == [5]


def test_what_is_read_is_committed() -> None:
    with registers() as (cluster, partition, node_id):
        led = cluster.led(node_id, partition)
        assert led is not None
        seen: list[tuple[int, int]] = []
        cluster.begin_add(node_id, NAME, 5)
        end_offset = led.replica.next_offset
        assert led.replica.high_watermark < end_offset
        reading = cluster.nodes[node_id].runtime.reading()
        cluster.call(node_id, reading.add, NAME)
        looked: list[int] = []

        def look() -> None:
            looked.append(reading.shard(NAME).values[NAME])
            reading.wait(lambda: seen.append((looked[0], led.replica.high_watermark)))

        cluster.call(node_id, reading.confirm, look)
        cluster.world.wait(lambda: bool(seen))
        assert seen == [(5, end_offset)]


def test_nodes_that_do_not_lead_the_partition_say_so() -> None:
    with registers() as (cluster, _, node_id):
        for other in cluster.nodes.keys() - {node_id}:
            assert cluster.add(other, NAME, 1) is ErrorCode.NOT_COORDINATOR
            assert cluster.read(other, NAME) is ErrorCode.NOT_COORDINATOR


# -- leadership --------------------------------------------------------------------------------------------


def test_the_next_coordinator_knows_what_was_answered() -> None:
    with registers() as (cluster, partition, node_id):
        assert [cluster.add(node_id, NAME, amount) for amount in (5, 6)] == [5, 11]
        cluster.world.kill(node_id, power=True)
        successor = cluster.coordinator(partition)
        assert cluster.read(successor, NAME) == 11
        assert cluster.add(successor, NAME, 1) == 12


def test_open_tickets_are_answered_when_leadership_is_lost() -> None:
    with registers() as (cluster, partition, node_id):
        assert cluster.add(node_id, NAME, 5) == 5
        cut_off(cluster, node_id)
        added, read = cluster.begin_add(node_id, NAME, 1), cluster.begin_read(node_id, NAME)
        assert cluster.answer(added) is ErrorCode.NOT_COORDINATOR
        assert cluster.answer(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert cluster.led(node_id, partition) is None
        assert cluster.read(node_id, NAME) is ErrorCode.NOT_COORDINATOR
        assert cluster.read(cluster.coordinator(partition, other_than=node_id), NAME) == 5


def test_a_stale_coordinator_answers_no_read() -> None:
    """It still serves. Its successor has decided more, and it does not know that yet."""
    with registers() as (cluster, partition, old):
        assert cluster.add(old, NAME, 5) == 5
        cut_off(cluster, old)
        read = cluster.begin_read(old, NAME)
        assert cluster.led(old, partition) is not None
        successor = cluster.coordinator(partition, other_than=old)
        assert cluster.add(successor, NAME, 1) == 6
        assert cluster.answer(read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_read_of_a_shard_that_is_loaded_anew_is_asked_again() -> None:
    with registers() as (cluster, partition, node_id):
        runtime = cluster.nodes[node_id].runtime
        done: list[ErrorCode] = []
        cluster.begin_add(node_id, NAME, 5)  # what the read sees is not committed yet
        reading = runtime.reading()
        reading.add(NAME)

        def read_and_reload() -> None:
            reading.wait(lambda: done.append(reading.error(NAME)))
            assert not done
            led = cluster.led(node_id, partition)
            assert led is not None
            runtime.reload_shard(led)

        cluster.call(node_id, read_and_reload)
        assert done == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_coordinators_of_one_node_do_not_affect_each_other() -> None:
    """They lead partitions with the same numbers. The topic of one coordinator is deleted."""
    with registers(size=1) as (cluster, _, node_id):
        world = cluster.world
        world.create_topic("foo", replication_factor=1)
        assert group_coordinator(world, "g") == node_id
        assert commit(world, node_id, commit_request("g", "foo", {0: 7})) == [0]
        groups = world.nodes[node_id].coordinators.groups
        before = groups.loaded_partitions()
        assert {led.replica.partition for led in before} > set(range(PARTITIONS))
        assert cluster.add(node_id, NAME, 5) == 5
        world.delete_topic(TOPIC)
        world.wait(lambda: not cluster.nodes[node_id].runtime.loaded_partitions())
        assert cluster.add(node_id, NAME, 1) is ErrorCode.NOT_COORDINATOR
        assert groups.loaded_partitions() == before
        assert committed(world, node_id, "g") == {("foo", 0): 7}


# -- loading -----------------------------------------------------------------------------------------------


def reload_shard(cluster: RegisterWorld, node_id: int, partition: int) -> None:
    led = cluster.led(node_id, partition)
    assert led is not None
    cluster.call(node_id, cluster.nodes[node_id].runtime.reload_shard, led)


def test_a_shard_takes_requests_when_all_of_its_log_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "RECORDS_PER_STEP", 1)
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        for amount in range(1, 8):
            cluster.add(node_id, NAME, amount)
        node = cluster.nodes[node_id]
        node.loads.clear()
        reload_shard(cluster, node_id, partition)
        assert cluster.begin_add(node_id, NAME, 1) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            node.runtime.reading().add_all()
        assert node.loads == []
        cluster.coordinator(partition)
        assert node.loads == [partition]
        assert cluster.shard(node_id, NAME).loaded_at is not None
        assert cluster.read(node_id, NAME) == 28


def list_names(cluster: RegisterWorld, node_id: int) -> list[str]:
    """The names of all shards of a node."""
    reading = cluster.nodes[node_id].runtime.reading()
    reading.add_all()
    found: list[str] = []
    done: list[bool] = []

    def look() -> None:
        for led in reading.partitions():
            found.extend(led.shard.values)
        reading.wait(lambda: done.append(True))

    cluster.call(node_id, reading.confirm, look)
    cluster.world.wait(lambda: bool(done))
    return found


def test_all_shards_of_a_node_are_read() -> None:
    with registers(size=1) as (cluster, _, node_id):
        names = [name for each in range(PARTITIONS) for name in names_of(cluster, node_id, each, 2)]
        for name in names:
            cluster.add(node_id, name, 1)
        assert sorted(list_names(cluster, node_id)) == sorted(names)


def test_unknown_record_types_are_passed_over() -> None:
    with registers(size=1) as (cluster, partition, node_id):
        (name,) = names_of(cluster, node_id, partition, 1)
        unknown = name_with_prefix(cluster, "?", partition)
        assert [cluster.add(node_id, each, 1) for each in (unknown, name)] == [1, 1]
        reload_shard(cluster, node_id, partition)
        assert cluster.coordinator(partition) == node_id
        assert cluster.shard(node_id, name).values == {name: 1}


def name_with_prefix(cluster: RegisterWorld, prefix: str, partition: int) -> str:
    """A name with this prefix that belongs to this partition."""
    topic = next(iter(cluster.nodes.values())).topic
    names = (f"{prefix}{number}" for number in range(100))
    return next(name for name in names if topic.partition_of(name) == partition)


def test_a_record_version_that_this_build_cannot_decode_fails_the_partition_and_not_the_node() -> None:
    """As in Kafka, requests for the partition are refused until it has another leader or another term."""
    with registers(size=1) as (cluster, partition, node_id):
        other = 1 - partition
        newer, elsewhere = name_with_prefix(cluster, "~", partition), name_with_prefix(cluster, "b", other)
        assert [cluster.add(node_id, name, 1) for name in (newer, NAME, elsewhere)] == [1, 1, 1]
        reload_shard(cluster, node_id, partition)
        assert cluster.add(node_id, NAME, 1) is ErrorCode.NOT_COORDINATOR
        assert cluster.read(node_id, NAME) is ErrorCode.NOT_COORDINATOR
        assert cluster.led(node_id, partition) is None
        assert cluster.add(node_id, elsewhere, 1) == 2
        assert list_names(cluster, node_id) == [elsewhere]


def test_a_batch_whose_records_cannot_be_read_fails_the_partition_and_not_the_node() -> None:
    """Its CRC is that of its bytes, so the log is not corrupt."""
    with registers(size=1) as (cluster, partition, node_id):
        batch = build_batch([NewRecord(b"a", b"1")])
        batch[HEADER_BYTES] = 0x7F  # the length of the first record, beyond the end of the batch
        replica = cluster.world.replica(node_id, TOPIC, partition)
        cluster.call(node_id, replica.append, renew_crc(batch), batch)
        reload_shard(cluster, node_id, partition)
        pass_time(cluster.world, 1)
        assert cluster.read(node_id, NAME) is ErrorCode.NOT_COORDINATOR
        assert replica.is_serving


def test_an_upgraded_node_loads_what_an_older_one_could_not() -> None:
    with registers() as (cluster, partition, first):
        newer = name_with_prefix(cluster, "~", partition)
        assert [cluster.add(first, name, 1) for name in (newer, NAME)] == [1, 1]
        cut_off(cluster, first)
        cluster.world.wait(lambda: cluster.led(first, partition) is None)
        cluster.world.network.heal_all()
        pass_time(cluster.world, 1)
        leader = cluster.world.leader(TOPIC, partition)
        assert cluster.read(leader, NAME) is ErrorCode.NOT_COORDINATOR
        cluster.upgraded.update(cluster.nodes)
        assert cluster.read(leader, NAME) is ErrorCode.NOT_COORDINATOR, "a term is loaded once"
        cut_off(cluster, leader)
        successor = cluster.coordinator(partition)
        assert successor != leader
        assert [cluster.read(successor, name) for name in (newer, NAME)] == [1, 1]


# -- what the log refuses ----------------------------------------------------------------------------------


def test_a_decision_that_cannot_be_encoded_leaves_nothing_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tombstones would be several batches, of which the first could be encoded."""
    monkeypatch.setattr(decisions, "MAX_TOMBSTONES_BYTES", 300)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 4)
        for name in names:
            assert cluster.add(node_id, name, 1) == 1
        led = cluster.led(node_id, partition)
        assert led is not None
        end_offset = led.replica.next_offset
        refused = cluster.begin_remove(node_id, [*names, "!"])
        assert cluster.answer(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.coordinator(partition) == node_id
        assert led.replica.next_offset == end_offset
        assert cluster.shard(node_id, names[0]) is not led.shard, "it was loaded anew"
        assert cluster.shard(node_id, names[0]).values == dict.fromkeys(names, 1)
        assert cluster.answer(cluster.begin_remove(node_id, names)) == 4
        assert cluster.shard(node_id, names[0]).values == {}


def test_a_shard_that_is_loaded_anew_has_what_was_accepted_before() -> None:
    """A decision was refused in the same loop iteration, before the accepted records were written."""
    with registers() as (cluster, partition, node_id):
        assert cluster.add(node_id, NAME, 5) == 5
        accepted, refused = cluster.begin_add(node_id, NAME, 1), cluster.begin_remove(node_id, [NAME, "!"])
        assert accepted == refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert cluster.coordinator(partition) == node_id
        here = cluster.read(node_id, NAME)
        cluster.world.kill(node_id, power=True)
        assert here == cluster.read(cluster.coordinator(partition), NAME), "a shard is what its log says"
        assert here == 6


def test_a_shard_that_is_loaded_anew_does_not_wait_for_what_finds_no_room() -> None:
    """What was accepted before in the same loop iteration could not be written. The node leads on, in the same term."""
    with registers(size=1) as (cluster, partition, node_id):
        assert cluster.add(node_id, NAME, 5) == 5
        replica = cluster.world.replica(node_id, TOPIC, partition)
        term, end_offset, disk = replica.leader_epoch, replica.next_offset, cluster.world.disks[node_id]
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        for _ in range(300):  # more than the padding of the last block
            cluster.begin_add(node_id, NAME, 1)
        cluster.begin_remove(node_id, [NAME, "!"])
        assert replica.next_offset == end_offset + 300
        cluster.world.loop.run_for(0.1)
        disk.faults.capacity_bytes = room
        assert (replica.next_offset, replica.leader_epoch) == (end_offset, term)
        assert cluster.led(node_id, partition) is not None
        assert cluster.read(node_id, NAME) == 5


# -- much to do --------------------------------------------------------------------------------------------


def test_keys_with_one_deadline_expire_over_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """After loading, all keys have the same deadline. They expire without any request."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(lifetime_s=60) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 5)
        for name in names:
            assert cluster.add(node_id, name, 1) == 1
        cluster.world.kill(node_id)
        successor = cluster.coordinator(partition)
        shard = cluster.shard(successor, names[0])
        assert shard.loaded_at is not None
        pass_time(cluster.world, shard.loaded_at + 59 - cluster.world.loop.time())
        assert shard.values == dict.fromkeys(names, 1)
        left: list[int] = []
        cluster.world.loop.after_callback.append(lambda: left.append(len(shard.values)))
        pass_time(cluster.world, 2)
        assert shard.values == {}
        assert sorted({5, 0} ^ set(left)) == [1, 3], "two of them in each piece"
        reload_shard(cluster, successor, partition)
        assert cluster.coordinator(partition) == successor
        assert cluster.shard(successor, names[0]).values == {}, "it is so in the log, too"


def test_decisions_about_many_keys_are_carried_out_over_several_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 5)
        for name in names:
            cluster.add(node_id, name, 1)
        led = cluster.led(node_id, partition)
        assert led is not None
        begin_incrementing(cluster, node_id, partition, names)
        assert list(led.shard.values.values()) == [2, 2, 1, 1, 1]
        cluster.world.wait(lambda: list(led.shard.values.values()) == [2] * 5)


def begin_incrementing(cluster: RegisterWorld, node_id: int, partition: int, names: list[str]) -> None:
    led, node = cluster.led(node_id, partition), cluster.world.nodes[node_id]
    assert led is not None
    steps = cluster.nodes[node_id].runtime.carry_out(led, names, led.shard.increment)
    cluster.call(node_id, node.background.run, steps)


def test_decisions_end_when_their_shard_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 5)
        for name in names:
            cluster.add(node_id, name, 1)
        led = cluster.led(node_id, partition)
        assert led is not None
        begin_incrementing(cluster, node_id, partition, names)
        reload_shard(cluster, node_id, partition)
        assert not cluster.nodes[node_id].runtime.is_active(led)
        pass_time(cluster.world, 1)
        assert cluster.shard(node_id, names[0]).values == dict(zip(names, [2, 2, 1, 1, 1], strict=True))


def test_nothing_is_decided_by_a_shard_after_a_decision_of_it_was_refused() -> None:
    """The shard has moved on from its log."""
    with registers(size=1) as (cluster, partition, node_id):
        led = cluster.led(node_id, partition)
        assert led is not None
        led.shard.values = {"!": 0, NAME: 0}
        begin_incrementing(cluster, node_id, partition, ["!", NAME])
        assert cluster.coordinator(partition) == node_id
        assert led.replica.next_offset == 0
        assert cluster.read(node_id, NAME) == -1


# -- decisions in steps ------------------------------------------------------------------------------------


def test_a_decision_in_steps_sees_and_shows_what_any_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others about the same key wait for it, in their order. Those about other keys do not."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers() as (cluster, partition, node_id):
        _, other = names_of(cluster, node_id, partition, 2)
        assert cluster.add(node_id, NAME, 1) == 1
        long = cluster.begin_adding(node_id, NAME, [1] * 9)
        shard = cluster.shard(node_id, NAME)
        after = [cluster.begin_add(node_id, NAME, 10), cluster.begin_adding(node_id, NAME, [100] * 9)]
        last = cluster.begin_add(node_id, NAME, 1000)
        assert shard.values[NAME] == 1, "it is not decided yet"
        assert cluster.begin_add(node_id, other, 5) is not None
        assert shard.values[other] == 5
        assert cluster.answer(last) == 1920
        assert (long, *after) == ([10], [20], [920])
        cluster.world.kill(node_id, power=True)
        assert cluster.read(cluster.coordinator(partition), NAME) == 1920


def test_a_decision_in_steps_is_refused_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, _, node_id):
        refused = cluster.begin_adding(node_id, NAME, [1] * 9 + [-100])
        after = cluster.begin_add(node_id, NAME, 7)
        assert cluster.answer(after) == 7
        assert refused == [ErrorCode.INVALID_REQUEST]


def test_a_decision_in_steps_appends_nothing_after_its_shard_was_discarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the append is left. The next shard would not see it: loading reads up to an end that was fixed before."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, outcome.FEW + 1)
        for name in names:
            cluster.add(node_id, name, 1)
        led = cluster.led(node_id, partition)
        assert led is not None
        end_offset = led.replica.next_offset
        # Two steps are run at once: the records are encoded, and they are put into a batch.
        monkeypatch.setattr(decisions, "RECORDS_PER_STEP", len(names))
        removed = cluster.begin_remove(node_id, names)
        reload_shard(cluster, node_id, partition)
        assert removed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        pass_time(cluster.world, 1)
        assert led.replica.next_offset == end_offset
        assert cluster.shard(node_id, names[0]).values == dict.fromkeys(names, 1)


def test_a_decision_with_many_records_is_replayed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees a part of it: what is asked about the key meanwhile waits."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    monkeypatch.setattr(decisions, "FEW", 3)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 8)
        for name in names:
            cluster.add(node_id, name, 1)
        removed = cluster.begin_remove(node_id, names)
        added = cluster.begin_add(node_id, names[0], 5)
        read = cluster.begin_read(node_id, names[0])
        assert cluster.shard(node_id, names[0]).values, "it has only begun"
        assert cluster.answer(removed) == 8
        assert cluster.answer(added) == 5
        assert cluster.answer(read) == 5
        assert cluster.shard(node_id, names[0]).values == {names[0]: 5}


def test_what_waits_for_a_decision_in_steps_is_answered_when_leadership_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers() as (cluster, partition, node_id):
        cut_off(cluster, node_id)
        long, after = cluster.begin_adding(node_id, NAME, [1] * 100), cluster.begin_add(node_id, NAME, 1)
        assert cluster.answer(after) is ErrorCode.NOT_COORDINATOR
        assert cluster.answer(long) is ErrorCode.NOT_COORDINATOR
        assert cluster.led(node_id, partition) is None
        assert cluster.read(cluster.coordinator(partition, other_than=node_id), NAME) == -1


def test_a_decision_in_steps_waits_for_a_leadership_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log takes no records meanwhile. The transfer fails, and the decision is carried out then."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers() as (cluster, partition, node_id):
        led = cluster.led(node_id, partition)
        assert led is not None
        long = cluster.begin_adding(node_id, NAME, [1] * 100)
        cut_off(cluster, node_id)
        target = next(voter for voter in led.replica.group.configuration.voters if voter.node_id != node_id)
        assert cluster.call(node_id, led.replica.driver.transfer_leadership, target)
        assert not led.replica.group.can_propose
        cluster.world.loop.run_for(0.02)
        assert long == []
        cluster.world.network.heal_all()
        assert cluster.answer(long) in (100, ErrorCode.NOT_COORDINATOR)
        if long == [100]:
            assert cluster.read(cluster.coordinator(partition), NAME) == 100
