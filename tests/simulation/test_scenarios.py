"""The schedules of replication.md as stories of whole clusters, each named after what it must not do.

Schedules that are told elsewhere are not repeated here:

section 1   a truncation that is half durable: `tests/storage/test_recovery.py`, a truncation survives a crash at every
            step, and a batch of another term than its row is cut; `tests/storage/test_log_through_power_cuts.py`;
            a row is durable before anything behind it: `tests/raft/testdata/row_durable_first.txt`
section 2   torn or corrupt: `tests/storage/test_recovery.py`; quarantine, and a leader whose own bytes are bad:
            `tests/broker/replication/test_damage.py`; a full disk: `tests/integration/test_full_disk.py`;
            corrupt votes: `tests/storage/test_journal.py`
section 3   the vote of the empty: `tests/raft/testdata/wiped_voter.txt`; a wiped node, lost votes, a change of members
            that the next leader finishes: `tests/broker/membership/test_identity.py`; one change at a time:
            `tests/raft/testdata/membership.txt`
section 4   a topic re-created under its name: `tests/broker/replication/test_damage.py`
section 5   a leader of an older term that nobody contradicts: `tests/raft/test_liveness.py`, a leader of an older term
            is challenged; PreVote and CheckQuorum of one group: `tests/raft/testdata`
section 6   what is committed by counting: `tests/raft/testdata/figure_8.txt`; deleted records and a leader that has
            just started: `tests/broker/replication/test_replicas.py`
section 7   a crash at every step of an install: `tests/storage/test_recovery.py`; `tests/raft/testdata/install.txt`
section 8   snapshots of committed state only, and durable before the log start rises:
            `tests/storage/test_producer_state.py`
section 10  formation, step by step: `tests/broker/metadata/test_metadata_formation.py`; power cuts while the cluster
            forms: `tests/broker/membership/test_identity.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from broker.replication.replica import Replica
from broker.replication.replicas import APPEND_BATCH_S, QUIET_S
from protocol.records.batch import iter_batches, parse_header, stamp
from protocol.records.builder import NewRecord, build_batch
from raft.types import RowKind
from storage.log import Log
from storage.log_creation import create_log
from storage.log_recovery import open_log
from storage.log_types import GroupKey, LogConfig
from storage.partition_folder import read_topic_id
from tests.broker.world import World, running
from tests.storage.helpers import segment_bases

ELECTION_TIMEOUT_S = 1.0
PRODUCER_ID = 77
#: Segments of a few batches. Retention waits for `raise_log_start`.
SMALL_SEGMENTS = {"log.segment.bytes": "1024", "log.retention.bytes": "3000"}
QUICK_RETENTION = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "500"}


def followers_of(world: World, leader: int) -> tuple[int, int]:
    one, other = (node_id for node_id in world.ids if node_id != leader)
    return one, other


def isolate(world: World, node_id: int) -> None:
    world.network.partition([f"n{node_id}"], [f"n{other}" for other in world.ids if other != node_id])


def start(world: World, *node_ids: int) -> None:
    for node_id in node_ids:
        world.start(node_id)
    world.wait_ready(*node_ids)


def lead(world: World, to: int, name: str) -> Replica:
    """Have this node lead, by transfer or by election. No other campaigns from now on."""
    replica = world.replica(to, name)
    for node_id, node in world.nodes.items():
        if node_id != to:
            node.replicas.stop_campaigning()
            other = world.replica(node_id, name)
            if other.is_leader:
                world.processes[node_id].call(other.driver.transfer_leadership, replica.group.self_id)
    world.wait(lambda: replica.is_serving and replica.group.can_propose)
    return replica


def append(world: World, node_id: int, name: str, sequence: int, value: bytes = b"v") -> tuple[int, int]:
    """One record of the idempotent producer, as a leader takes it. Returns (base offset, end offset)."""
    batch = build_batch(
        [NewRecord(None, value, 1)], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence
    )
    header = next(iter_batches(memoryview(batch)))[1]
    return world.processes[node_id].call(world.replica(node_id, name).append, header, batch)


def acknowledged(world: World, name: str, sequence: int, value: bytes = b"v") -> int:
    """... and as its client sees it. Returns the base offset."""
    leader = world.leader(name)
    base_offset, end_offset = append(world, leader, name, sequence, value)
    world.wait(lambda: world.replica(leader, name).high_watermark >= end_offset)
    return base_offset


def raise_log_start(world: World, name: str, *node_ids: int) -> int:
    """Have the leader apply retention; wait until these nodes have followed. Returns the log start."""
    leader = world.leader(name)
    replica = world.replica(leader, name)
    before = replica.log.start_offset
    world.processes[leader].call(replica.apply_retention)
    world.wait(lambda: replica.log.start_offset > before)
    log_start = replica.log.start_offset
    world.wait(lambda: all(world.replica(x, name).log.start_offset == log_start for x in node_ids))
    return log_start


@contextmanager
def stopped_log(world: World, node_id: int, name: str) -> Iterator[Log]:
    """The log of a node that is down, to be changed as its own process would have."""
    disk, directory = world.disks[node_id], f"/n{node_id}/{name}-0"
    log = open_log(
        disk,
        directory,
        GroupKey(read_topic_id(disk, directory), 0),
        LogConfig(),
        recorded=None,
        log_start=0,
        is_clean=False,
    )
    yield log
    log.flush()
    log.close(is_clean=False)


# -- section 2 -----------------------------------------------------------------------------------------------


def test_a_failed_flush_ends_the_leader_and_nothing_of_that_round_is_acknowledged() -> None:
    """Section 2: any error of fsync ends the process; the others go on, and the disk, repaired, is trusted again."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"before")
        leader = world.leader("foo")
        replica, process = world.replica(leader, "foo"), world.processes[leader]
        world.disks[leader].faults.flush_error_rate = 1.0
        append(world, leader, "foo", 0)
        end_index = replica.group.persisted_end
        world.wait(lambda: not process.alive)
        assert replica.group.persisted_end == end_index
        del world.processes[leader], world.nodes[leader]
        world.disks[leader].faults.flush_error_rate = 0.0
        world.disks[leader].crash()
        assert acknowledged(world, "foo", 0) <= 2
        start(world, leader)
        world.wait_equal("foo")


def test_a_follower_without_space_stays_and_goes_on_when_there_is_some() -> None:
    """Section 2: a full disk is an answer; a follower stops acknowledging, and nobody waits for it."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        full, _ = followers_of(world, world.leader("foo"))
        replica, faults = world.replica(full, "foo"), world.disks[full].faults
        end_offset, taken = replica.log.end_offset, world.disks[full].free_bytes()
        faults.capacity_bytes -= taken
        # Until then it may still write into the padding of its segment.
        world.wait(lambda: world.nodes[full].replicas.space.is_low)
        for number in range(5):
            world.produce("foo", b"%d" % number * 300)
        world.loop.run_for(5)
        assert world.processes[full].alive
        assert replica.log.end_offset == end_offset
        faults.capacity_bytes += taken
        world.wait_equal("foo")
        assert world.replica(full, "foo") is replica, "and it is the same as before"


def test_a_follower_leaves_the_reserve_for_what_is_not_clients_data() -> None:
    """Section 2: below log.min.free.bytes only votes, rows and internal logs are written, on followers as well: a topic
    is still created there and deleted."""
    with running(settings={"log.min.free.bytes": "100000"}) as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        low, _ = followers_of(world, world.leader("foo"))
        replica, faults = world.replica(low, "foo"), world.disks[low].faults
        # Until no log has padding any more, whose end would give room back.
        world.loop.run_for(3 * QUIET_S)
        end_offset, taken = replica.log.end_offset, world.disks[low].free_bytes() - 90_000
        faults.capacity_bytes -= taken
        world.loop.run_for(1)
        for number in range(5):
            world.produce("foo", b"%d" % number * 300)
        world.create_topic("bar")
        world.loop.run_for(5)
        assert world.processes[low].alive
        assert replica.log.end_offset == end_offset
        assert world.replica(low, "bar").is_open
        faults.capacity_bytes += taken
        world.wait_equal("foo")
        assert world.replica(low, "foo") is replica


def test_a_leader_asks_a_follower_of_another_history_and_keeps_its_own() -> None:
    """Section 1: where a follower has a row, the leader has the middle of a batch. What it asks there is no damage."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        for node_id in world.ids:
            world.kill(node_id)
        with stopped_log(world, 1, "foo") as log:
            term, offset = log.lineage.last_term, log.end_offset
            batch = build_batch([NewRecord(None, b"%d" % number, 1) for number in range(3)])
            log.append_batches([batch], [stamp(batch, parse_header(batch), offset, term)])
            log.append_row(term + 2, RowKind.LEADER, b"")
        with stopped_log(world, 3, "foo") as log:
            log.append_row(term + 1, RowKind.LEADER, b"")
        start(world, 1, 2)
        assert world.leader("foo") == 1
        start(world, 3)
        world.wait_equal("foo")
        assert {voter[2] for voter in world.voters("foo")} == {0}, "nobody had to begin anew"
        assert world.replica(3, "foo").log.end_offset == offset + 3


def test_a_leaders_corrupt_base_offset_harms_nobody_else() -> None:
    """Section 2: base offsets are outside the CRC; a follower checks that a range is continuous and ends where it says.
    Otherwise it holds records in the wrong place, and nothing in the right one. The leader is rebuilt."""
    with running(settings=SMALL_SEGMENTS) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        away, _ = followers_of(world, leader)
        world.kill(away)
        for number in range(12):
            world.produce("foo", b"%d" % number * 200)
        log = world.replica(leader, "foo").log
        *_, last = log.batches(0, segment_bases(log)[1])
        file = world.disks[leader].open(last.file.path)
        file.write_at(last.position, (last.header.base_offset + 2).to_bytes(8, "big"))
        start(world, away)
        world.wait(lambda: (leader, 1) in [(node_id, life) for node_id, _, life in world.voters("foo")])
        world.wait_equal("foo")
        offsets = [batch.header.base_offset for batch in world.replica(away, "foo").log.batches(0)]
        assert offsets == list(range(12))


def test_a_base_offset_that_rose_by_corruption_is_no_hole() -> None:
    """Section 2: it lies outside the CRC, and it hides what stands there. The leader sends a range without batches, the
    follower refuses it, and what the leader reads again must not look like nothing to complain of."""
    with running() as world:
        world.create_topic("foo")
        before = world.leader("foo")
        away, leader = followers_of(world, before)
        world.kill(away)
        world.produce("foo", b"a")
        lead(world, leader, "foo")  # a row of another term stands behind the batch
        world.nodes[before].replicas.may_campaign = True
        world.produce("foo", b"b")
        log = world.replica(leader, "foo").log
        first = next(iter(log.batches(0)))
        log._segments[0]._cursors.clear()  # as if it had been read long ago
        first.file.write_at(first.position, (1 << 33).to_bytes(8, "big"))
        start(world, away)
        world.wait(lambda: (leader, 1) in [(node_id, life) for node_id, _, life in world.voters("foo")])
        assert world.produce("foo", b"c") == 2
        world.wait_equal("foo")


def test_a_truncation_that_meets_corruption_costs_the_replica_and_not_the_node() -> None:
    """Section 2: corruption that the node meets by itself. The truncation looks for the end of the batch to keep."""
    with running() as world:
        world.create_topic("foo")
        for sequence in range(3):
            acknowledged(world, "foo", sequence)
        world.wait_equal("foo")
        leader = world.leader("foo")
        isolate(world, leader)
        append(world, leader, "foo", 3, b"only here")
        world.loop.run_for(2 * ELECTION_TIMEOUT_S)
        assert world.produce("foo", b"of another") == 3

        replica, node = world.replica(leader, "foo"), world.nodes[leader]
        _, second, *_ = replica.log.batches(0)
        replica.log._segments[0]._cursors.clear()  # as if it had been read long ago
        second.file.write_at(second.position + 8, (1 << 30).to_bytes(4, "big"))
        world.network.heal_all()
        world.wait(lambda: (leader, 1) in [(node_id, life) for node_id, _, life in world.voters("foo")])
        assert world.nodes[leader] is node, "the node has not ended"
        world.wait_equal("foo")


# -- section 3 -----------------------------------------------------------------------------------------------


def test_an_empty_voter_does_not_help_the_one_that_lags() -> None:
    """Section 3: e is on A and B while C lags; B's disk is wiped; A pauses; C must not lead without e."""
    with running() as world:
        world.create_topic("foo")
        a = world.leader("foo")
        b, c = followers_of(world, a)
        world.kill(c)
        world.produce("foo", b"e")
        world.kill(b)
        world.wipe(b)
        world.loop.pause(world.processes[a])
        world.start(b)
        world.start(c)
        world.loop.run_for(10 * ELECTION_TIMEOUT_S)
        assert not any(
            replica.is_leader for x in (b, c) for replica in world.nodes[x].replicas.by_key.values()
        )
        world.loop.resume(world.processes[a])
        world.wait_ready()
        assert world.produce("foo", b"after") == 1
        world.wait_equal("foo")


# -- section 4 -----------------------------------------------------------------------------------------------


def test_only_a_deletion_that_is_committed_removes_a_log() -> None:
    """Section 4: deleted by id while the node was away, it goes; what the image merely lacks is kept as a stray."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        world.kill(3)
        world.delete_topic("foo")
        unknown = GroupKey(UUID(int=5), 0)
        log = create_log(world.disks[3], "/n3/bar-0", unknown, LogConfig())
        log.append_row(1, 0, b"")
        log.close(is_clean=True)
        start(world, 3)
        world.wait(lambda: not world.folders(3, "foo-0"))
        assert world.folders(3, "bar-0") == [f"bar-0.{unknown.topic_id.hex}-stray"]


# -- section 5 -----------------------------------------------------------------------------------------------


def test_a_leader_that_dies_in_silence_and_is_back_at_once_is_replaced() -> None:
    """Section 5: killed and back in 0.5 s, everybody looks alive; its new boot id ends what it led."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        leader = world.leader("foo")
        term = world.replica(leader, "foo").group.term
        world.network.power_off(f"n{leader}")
        world.kill(leader, power=True)
        world.loop.run_for(0.5)
        world.network.power_on(f"n{leader}")
        began_s = world.loop.time()
        node = world.start(leader)
        world.wait(lambda: node.cluster_id is not None)
        assert world.produce("foo", b"b") == 1
        assert world.loop.time() - began_s < 2 * ELECTION_TIMEOUT_S
        assert world.replica(world.leader("foo"), "foo").group.term > term
        world.wait_ready()
        world.wait_equal("foo")


def test_a_leader_that_hears_nobody_resigns_though_everybody_hears_it() -> None:
    """Section 5: only an echo of my number counts for me; a one-way link must not feed CheckQuorum."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        leader = world.leader("foo")
        for other in followers_of(world, leader):
            world.network.cut(f"n{other}", f"n{leader}")
        world.loop.run_for(2 * ELECTION_TIMEOUT_S)
        assert not world.replica(leader, "foo").is_leader
        assert world.produce("foo", b"b") == 1
        assert world.leader("foo") != leader
        world.network.heal_all()
        world.wait_equal("foo")


def test_an_isolated_leader_serves_nothing_after_two_election_timeouts_and_its_writes_are_gone() -> None:
    """Section 5, CheckQuorum; section 8: the truncated write is no duplicate when it is sent again."""
    with running() as world:
        world.create_topic("foo")
        assert acknowledged(world, "foo", 0, b"a") == 0
        world.wait_equal("foo")
        leader = world.leader("foo")
        isolate(world, leader)
        assert append(world, leader, "foo", 1, b"only here") == (1, 2)
        world.loop.run_for(2 * ELECTION_TIMEOUT_S)
        assert not world.replica(leader, "foo").is_leader
        assert world.replica(leader, "foo").high_watermark == 1
        assert world.produce("foo", b"of another") == 1
        world.network.heal_all()
        world.wait_equal("foo")
        lead(world, leader, "foo")
        assert acknowledged(world, "foo", 1, b"again") == 2
        world.wait_equal("foo")
        assert b"only here" not in world.content(leader, "foo")


@pytest.mark.parametrize("loss", ["memory", "disk"])
def test_a_node_that_forgot_whom_it_elected_confirms_nobody(loss: str) -> None:
    """Sections 3, 5 and 6: Y votes for Z, together they commit, Y dies; back again it reaches only X, the leader of
    before. An echo from a Y that has not opened its log yet, or has another one, must not let X answer reads."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        x = world.leader("foo")
        y, z = followers_of(world, x)
        isolate(world, x)
        old, new = world.replica(x, "foo"), lead(world, z, "foo")
        _, end_offset = append(world, z, "foo", 0)
        world.wait(lambda: new.high_watermark >= end_offset)
        assert old.is_serving, "nobody has told it yet, and it has not missed its followers for long"
        world.kill(y)
        if loss == "disk":
            world.wipe(y)
        world.start(y)
        world.network.heal(f"n{x}", f"n{y}")
        world.network.heal(f"n{y}", f"n{x}")
        confirmed: set[GroupKey] = set()
        resigned_s = world.loop.time() + 2 * ELECTION_TIMEOUT_S
        while old.is_serving and world.loop.time() < resigned_s:
            world.processes[x].call(world.nodes[x].reads.confirm, [old], confirmed.update)
            world.loop.run_for(0.01)
        assert confirmed == set()
        assert not old.is_serving


def test_a_follower_that_was_cut_off_comes_back_without_a_higher_term() -> None:
    """Section 5, PreVote: a rejoining node raises no term."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        leader = world.leader("foo")
        term = world.replica(leader, "foo").group.term
        away, _ = followers_of(world, leader)
        isolate(world, away)
        world.loop.run_for(10 * ELECTION_TIMEOUT_S)
        world.produce("foo", b"b")
        world.network.heal_all()
        world.wait_equal("foo")
        assert {world.replica(x, "foo").group.term for x in world.ids} == {term}
        assert world.leader("foo") == leader


# -- sections 6 to 8 -----------------------------------------------------------------------------------------


def test_a_log_start_that_a_majority_holds_survives_the_one_that_set_it() -> None:
    """Section 6: A and B have raised the log start, A dies, C, whose log is complete, leads: what was deleted must not
    be back. Vote grants carry the log start, and the winner takes it before it serves."""
    with running(settings=SMALL_SEGMENTS) as world:
        world.create_topic("foo")
        for number in range(20):
            world.produce("foo", b"%d" % number * 300)
        world.wait_equal("foo")
        a = world.leader("foo")
        b, c = followers_of(world, a)
        isolate(world, c)
        log_start = raise_log_start(world, "foo", a, b)
        world.kill(a)
        world.network.heal_all()
        replica = lead(world, c, "foo")
        world.wait(lambda: replica.log_start_offset >= 0)
        assert replica.log_start_offset == log_start


def test_what_is_not_shown_as_deleted_can_be_read() -> None:
    """Section 6: a log start is shown when a majority has persisted it; until then readers find no gap above it."""
    with running(settings=SMALL_SEGMENTS) as world:
        world.create_topic("foo")
        for number in range(20):
            world.produce("foo", b"%d" % number * 300)
        world.wait_equal("foo")
        leader = world.leader("foo")
        isolate(world, leader)
        assert raise_log_start(world, "foo") > 0
        replica = world.replica(leader, "foo")
        assert replica.log_start_offset == 0
        part = replica.log.read(0, 1, below_offset=replica.high_watermark)
        assert part is not None and part.first_offset == 0


def test_a_producer_below_the_log_start_is_known_to_a_follower_that_was_installed_there() -> None:
    """Sections 7 and 8: retention removed a producer's batches; its retry is not appended twice."""
    with running(settings=SMALL_SEGMENTS) as world:
        world.create_topic("foo")
        assert acknowledged(world, "foo", 0) == 0
        away = followers_of(world, world.leader("foo"))[0]
        world.kill(away)
        world.wipe(away)
        for number in range(20):
            world.produce("foo", b"%d" % number * 300)
        log_start = raise_log_start(world, "foo", *world.nodes)
        start(world, away)
        new = world.nodes[away].me.directory_id.bytes
        world.wait(lambda: (away, new, 0) in world.voters("foo"))
        world.wait_equal("foo")
        replica = lead(world, away, "foo")
        assert replica.log.first_stored_offset == log_start
        end_offset = replica.log.end_offset
        assert append(world, away, "foo", 0) == (0, 1)
        assert replica.next_offset == end_offset


@pytest.mark.parametrize("end", ["stopped", "killed", "without power"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("limit", [{"log.retention.bytes": "3000"}, {"log.retention.ms": "5000"}])
def test_what_retention_has_removed_stays_removed_over_a_restart(
    limit: dict[str, str], size: int, end: str
) -> None:
    """Section 6: the log start is persisted by each replica; nothing at or above it is lost with it."""
    with running(size=size, settings=QUICK_RETENTION | limit) as world:
        world.create_topic("foo", replication_factor=size)
        assert acknowledged(world, "foo", 0) == 0
        for number in range(20):
            world.produce("foo", b"%d" % number * 300)
            world.loop.run_for(APPEND_BATCH_S)  # what comes in one range is in one segment
        world.wait(lambda: all(world.replica(x, "foo").log.start_offset > 0 for x in world.ids))
        world.produce("foo", b"young")
        world.wait_equal("foo")
        starts = {x: world.replica(x, "foo").log.start_offset for x in world.ids}
        kept = world.content(1, "foo")[-60:]
        for node_id in world.ids:
            world.stop(node_id) if end == "stopped" else world.kill(node_id, power=end == "without power")
        world.start_all()
        leader = world.leader("foo")
        assert acknowledged(world, "foo", 0) == 0, "a retry of what is gone is no new write"
        for node_id, log_start in starts.items():
            log = world.replica(node_id, "foo").log
            assert log_start <= log.start_offset <= 21
            assert segment_bases(log)[0] == log.first_stored_offset >= log_start
        world.wait(lambda: world.replica(leader, "foo").high_watermark == 22)
        assert world.content(leader, "foo").endswith(kept)
        assert world.produce("foo", b"after") == 22


# -- section 10 ----------------------------------------------------------------------------------------------


def test_two_fresh_volumes_do_not_erase_the_third() -> None:
    """Section 10: nodes 1 and 2 lose their volumes; they must not form a majority of their own and overrule node 3."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"precious")
        world.wait_equal("foo")
        cluster_id = world.nodes[3].cluster_id
        for node_id in world.ids:
            world.kill(node_id)
        world.wipe(1)
        world.wipe(2)
        for node_id in world.ids:
            world.start(node_id)
        world.loop.run_for(20 * ELECTION_TIMEOUT_S)
        assert {node.cluster_id for node in world.nodes.values()} == {cluster_id}
        metadata = [node.metadata.replica for node in world.nodes.values()]
        assert not any(replica is not None and replica.is_leader for replica in metadata)
        log = world.disks[3].durable_contents("/n3/foo-0/00000000000000000000.log")
        assert log is not None and b"precious" in log
