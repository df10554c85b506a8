"""`varve.Cluster` and `varve.AsyncCluster` with real nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import varve
from broker.cli.processes import is_running
from tests.integration.harness import eventually
from tests.python_package.helpers import assert_ended, node_processes, produce, read


@pytest.fixture(scope="module")
def three() -> Iterator[varve.Cluster]:
    with varve.Cluster() as cluster:
        yield cluster


@pytest.fixture
def one() -> Iterator[varve.Cluster]:
    with varve.Cluster(nodes=1) as cluster:
        yield cluster


def test_records_outlive_the_leader_and_the_whole_cluster(three: varve.Cluster) -> None:
    three.create_topic("first", partitions=2)
    leader = three.leader("first")
    produce(three.bootstrap_servers, "first", *map(str, range(10)))
    three.kill(leader)
    assert three.leader("first") != leader
    assert len(read(three.bootstrap_servers, "first", 1)) == 1
    three.kill()
    three.restart()
    three.heal()
    assert three.describe().count("in sync 1,2,3") == 2, "of both partitions"
    three.delete_topic("first")
    with pytest.raises(varve.ClusterError, match="there is no partition 0 of a topic first"):
        three.leader("first")


def test_a_paused_node_answers_nothing_until_it_is_resumed(three: varve.Cluster) -> None:
    three.create_topic("paused")
    three.pause(2)
    assert "paused" in three.describe()
    three.heal()
    assert "paused, pid" not in three.describe()
    assert {len(x) for x in (three.address(1), three.address(2))} == {len("localhost:15000")}


def test_a_restarted_node_is_another_process_with_the_same_address(three: varve.Cluster) -> None:
    before, address = node_processes(three.directory), three.address(3)
    three.restart(3)
    after = node_processes(three.directory)
    assert after[3] != before[3] and after[1] == before[1]
    assert three.address(3) == address
    former = Path(three.directory, "node-3", "log.1").read_text(encoding="utf-8")
    assert "stopping" in former, "it was asked to stop, and handed over"
    assert "stopping" not in three.log(3), "the log of this start"
    three.heal()


def test_what_a_node_refuses_is_told(three: varve.Cluster) -> None:
    with pytest.raises(varve.ClusterError, match="INVALID_TOPIC"):
        three.create_topic("no/slash")
    with pytest.raises(varve.ClusterError, match=r"there is no node 4; the nodes are 1, 2, 3"):
        three.kill(4)
    with pytest.raises(varve.ClusterError, match="there is no node 0"):
        three.address(0)


def test_two_clusters_stand_side_by_side(three: varve.Cluster, one: varve.Cluster) -> None:
    assert not set(three.bootstrap_servers.split(",")) & set(one.bootstrap_servers.split(","))
    one.create_topic("only-here")
    assert "only-here" not in three.describe()
    assert "the end of" in one.describe(1) and "the end of" not in one.describe(0)


def test_settings_are_those_of_every_node() -> None:
    with varve.Cluster(1, {"auto.create.topics.enable": True, "num.partitions": 3}) as cluster:
        produce(cluster.bootstrap_servers, "by-itself", "a")
        assert "by-itself-2  leader node 1" in cluster.describe()


def test_the_topic_of_groups_is_there_before_the_first_group(one: varve.Cluster) -> None:
    """Otherwise the client of the first one hears that there is no coordinator, and asks again after a second."""
    admin = AdminClient({"bootstrap.servers": one.bootstrap_servers})
    found = eventually(lambda: admin.list_topics().topics.get("__consumer_offsets"), "__consumer_offsets")
    assert len(found.partitions) == 4


def test_a_wrong_setting_shows_what_the_node_says() -> None:
    cluster = varve.Cluster(1, {"num.partitions": "many"})
    with pytest.raises(varve.ClusterError, match=r"(?s)node 1 has stopped.*num\.partitions"):
        cluster.start()
    assert not cluster.is_started
    with pytest.raises(varve.ClusterError, match="has not been started"):
        cluster.kill(1)


def test_a_node_that_crashes_is_not_passed_over_in_silence(one: varve.Cluster) -> None:
    os.kill(node_processes(one.directory)[1].pid, signal.SIGKILL)
    assert_ended(node_processes(one.directory))
    with pytest.raises(varve.ClusterError, match=r"(?s)node 1 has ended by itself; the end of .*started"):
        one.heal()
    assert "ENDED BY ITSELF" in one.describe()
    with pytest.raises(varve.ClusterError, match="ended by itself"):
        one.stop()
    assert not one.is_started


def test_data_stay_where_the_user_wants_them_and_go_otherwise(tmp_path: Path) -> None:
    with varve.Cluster(1, directory=tmp_path / "kept") as cluster:
        cluster.create_topic("kept")
        produce(cluster.bootstrap_servers, "kept", "a", "b")
        with pytest.raises(varve.ClusterError, match="another command is working"):
            varve.Cluster(1, directory=tmp_path / "kept").start()
    with varve.Cluster(1, directory=tmp_path / "kept") as cluster:
        assert read(cluster.bootstrap_servers, "kept", 2) == ["a", "b"]
    with pytest.raises(varve.ClusterError, match="holds the data of 1 node,"):
        varve.Cluster(3, directory=tmp_path / "kept").start()
    with pytest.raises(varve.ClusterError, match="/dev/null"):
        varve.Cluster(1, directory="/dev/null/never").start()
    with varve.Cluster(1) as cluster:
        temporary = Path(cluster.directory)
        assert temporary.is_dir()
    assert not temporary.exists()


def test_a_cluster_that_is_all_down_or_hangs_says_so_at_once(one: varve.Cluster) -> None:
    one.pause()
    with pytest.raises(
        varve.ClusterError, match="no node answers CreateTopicsRequest: all are down or paused"
    ):
        one.create_topic("unheard")
    one.kill()
    with pytest.raises(varve.ClusterError, match="node 1 does not run"):
        one.pause(1)
    assert "no node runs that could answer" in one.describe()
    one.kill()
    one.heal()
    one.create_topic("heard")


def test_ctrl_c_gives_one_request_up_and_no_other(one: varve.Cluster) -> None:
    """The answer of the request that was given up comes first, and is not taken for that of the next one."""
    one.create_topic("led", settings={"min.insync.replicas": 1})
    (process,) = node_processes(one.directory).values()
    os.kill(process.pid, signal.SIGSTOP)  # behind the supervisor's back, so it waits for an answer
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        one.leader("led")
    os.kill(process.pid, signal.SIGCONT)
    assert "started" in one.log(1)
    assert one.leader("led") == 1


def test_a_process_that_was_forked_has_no_say(one: varve.Cluster) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            one.stop()
            one.kill(1)
        except varve.ClusterError as error:
            os._exit(7 if f"belongs to process {os.getppid()}" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    one.create_topic("ours")


def test_a_cluster_can_be_started_again(one: varve.Cluster) -> None:
    first = node_processes(one.directory)
    one.start()
    assert is_running(first[1]), "it runs already"
    one.stop()
    assert_ended(first)
    one.stop()
    one.start()
    one.create_topic("anew")


def test_variables_of_the_tested_program_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "nonsense")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "elsewhere:9092")
    monkeypatch.setenv("VARVE_CLUSTER_SECRET", "short")
    monkeypatch.setenv("CLUSTER_ID", "nonsense")
    with varve.Cluster(1) as cluster:
        assert "elsewhere" not in cluster.log(1)


def test_number_of_nodes_is_within_reason() -> None:
    with pytest.raises(ValueError, match="1 to 9 nodes, not 0"):
        varve.Cluster(0)


async def test_the_event_loop_goes_on_while_a_cluster_is_awaited() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with varve.Cluster(1) as cluster:
        assert turns > 10
        await cluster.create_topic("async")
        assert await cluster.leader("async") == 1
        processes = node_processes(cluster.directory)
        await cluster.restart(1)
        processes |= {2: node_processes(cluster.directory)[1]}
    counting.cancel()
    assert_ended(processes)


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with varve.Cluster(1, directory=tmp_path):
            raise AssertionError("cancelled before")

    task = asyncio.create_task(run())
    await asyncio.to_thread(eventually, lambda: node_processes(tmp_path), "the start of a node")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_ended(node_processes(tmp_path))


async def test_a_cluster_has_both_kinds_of_methods(one: varve.Cluster) -> None:
    cluster = varve.AsyncCluster(one)
    await cluster.create_topic("both")
    assert one.leader("both") == 1
