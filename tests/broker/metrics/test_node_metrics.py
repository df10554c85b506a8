"""What whole nodes show of themselves, next to what was done to them."""

from __future__ import annotations

from broker.config.node_config import NodeConfig
from broker.metadata.quotas import CLIENT_ID, PRODUCER_BYTE_RATE
from broker.metrics.catalogue import CATALOGUE
from broker.metrics.coordinators import MAX_NAME
from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.admin_http.http_client import SETTINGS
from tests.broker.asking import ask
from tests.broker.compacting import compact
from tests.broker.compacting import request as compact_request
from tests.broker.groups.world import commit, commit_request, coordinator
from tests.broker.metrics.scrape import Scrape, scrape
from tests.broker.transactions.client import FEW, Client
from tests.broker.world import World, running

LAG_S = NodeConfig().replica_lag_time_max_ms / 1000


def sum_of(world: World, name: str, **labels: str) -> float:
    """Over all nodes that run."""
    return sum(sum(scrape(world, node_id).all(name, **labels).values()) for node_id in world.nodes)


def fetch_request(topic: str, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def test_every_metric_is_shown_and_no_other() -> None:
    with running(1, settings=SETTINGS) as world:
        shown = {line.split(" ")[2] for line in scrape(world).text.splitlines() if line.startswith("# TYPE ")}
        wanted = set(CATALOGUE) | {each.kafka_name for each in CATALOGUE.values()} - {""}
        assert {name for name in shown if not name.startswith("process_")} == wanted
        assert "process_resident_memory_bytes" in shown


def test_requests_are_counted_and_timed_by_api() -> None:
    with running(1, settings=SETTINGS) as world:
        for _ in range(3):
            ask(world, 1, ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        seen = scrape(world)
        assert seen("varve_requests_total", api="ApiVersions") == 3
        assert seen("kafka_network_requestmetrics_requests_total", request="ApiVersions") == 3
        assert seen("varve_request_duration_seconds_count", api="ApiVersions") == 3
        assert seen("varve_request_duration_seconds_bucket", api="ApiVersions", le="+Inf") == 3
        assert seen("varve_connections_accepted_total") == 3
        assert seen("varve_received_bytes_total") > 0
        assert seen("varve_sent_bytes_total") > seen("varve_received_bytes_total"), (
            "the answer lists all APIs"
        )


def test_a_long_poll_takes_as_long_as_it_waits() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("t", replication_factor=1)
        assert world.leader("t") == 1
        ask(world, 1, ApiKey.FETCH, 12, fetch_request("t", max_wait_ms=500), FetchResponse)
        seen = scrape(world)
        assert 0.5 <= seen("varve_request_duration_seconds_sum", api="Fetch") < 0.52
        assert seen("varve_request_duration_seconds_bucket", api="Fetch", le="0.262144") == 0
        assert seen("varve_request_duration_seconds_bucket", api="Fetch", le="0.524288") == 1


def test_what_is_produced_and_fetched_is_counted_by_topic() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("t", 2, replication_factor=1)
        world.produce("t", b"a", b"b", b"c")
        world.produce("t", b"d", partition=1)
        seen = scrape(world)
        assert seen("varve_topic_produced_records_total", topic="t") == 4
        assert seen("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 4
        size = sum(world.replica(1, "t", partition).log.size_bytes for partition in (0, 1))
        assert seen("varve_topic_produced_bytes_total", topic="t") == size
        assert seen("varve_topic_bytes", topic="t", cleanup="delete") == size
        assert seen("varve_topic_fetched_bytes_total", topic="t") == 0

        ask(world, 1, ApiKey.FETCH, 12, fetch_request("t"), FetchResponse)
        fetched = world.replica(1, "t", 0).log.size_bytes
        assert scrape(world)("varve_topic_fetched_bytes_total", topic="t") == fetched


def test_a_topic_that_is_deleted_is_shown_no_more() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("t", replication_factor=1)
        assert scrape(world).all("varve_topic_bytes", topic="t")
        world.delete_topic("t")
        world.wait(lambda: ("t", 0) not in world.nodes[1].replicas.by_name)
        assert 'topic="t"' not in scrape(world).text


def test_offsets_are_shown_by_the_leader_alone() -> None:
    with running(settings=SETTINGS) as world:
        world.create_topic("t")
        world.produce("t", b"a", b"b")
        leader = world.leader("t")
        for node_id in world.nodes:
            seen = scrape(world, node_id)
            assert len(seen.all("varve_partition_bytes", topic="t", partition="0")) == 1
            shown = 1 if node_id == leader else 0
            assert seen("varve_partitions_led") == shown
            assert len(seen.all("varve_partition_high_watermark")) == shown
        seen = scrape(world, leader)
        assert seen("varve_partition_log_end_offset") == 2
        assert seen("varve_partition_high_watermark") == 2
        assert seen("varve_partition_last_stable_offset") == 2
        assert seen("varve_partition_replicas") == 3
        assert seen("varve_partition_replicas_in_sync") == 3


def test_a_follower_that_is_away_lags_and_its_partitions_are_under_replicated() -> None:
    with running(settings=SETTINGS) as world:
        world.create_topic("t", configs={"min.insync.replicas": "3"})
        world.create_topic("u")
        leader = world.leader("t")
        gone = next(node_id for node_id in world.nodes if node_id not in (leader, world.leader("u")))
        for topic in ("t", "u"):
            world.produce(topic, b"a")
        assert sum_of(world, "varve_partitions_under_replicated") == 0
        world.kill(gone)
        world.append(leader, "t", b"b", b"c", b"d")
        world.loop.run_for(LAG_S + 1)

        seen = scrape(world, world.leader("t"))
        assert seen("varve_follower_lag_records", topic="t", follower=str(gone)) == 3
        (other,) = set(world.nodes) - {world.leader("t")}
        assert seen("varve_follower_lag_records", topic="t", follower=str(other)) == 0
        assert seen("varve_partition_replicas_in_sync", topic="t") == 2
        assert sum_of(world, "varve_partitions_under_replicated") == 2
        assert sum_of(world, "kafka_server_replicamanager_underreplicatedpartitions") == 2
        assert sum_of(world, "varve_partitions_under_min_isr") == 1
        assert seen("varve_brokers", state="connected") == 2
        assert seen("varve_brokers", state="away") == 1


def test_the_controller_counts_partitions_without_a_leader() -> None:
    with running(settings=SETTINGS) as world:
        world.create_topic("single", replication_factor=1)
        (home,) = (node_id for node_id, node in world.nodes.items() if ("single", 0) in node.replicas.by_name)
        world.loop.run_for(1.0)  # all have heard of the leader
        assert sum_of(world, "varve_partitions_offline") == 0
        assert sum_of(world, "varve_controller_active") == 1
        world.kill(home)
        world.loop.run_for(5.0)
        assert sum_of(world, "varve_controller_active") == 1
        assert sum_of(world, "varve_partitions_offline") == 1


def test_a_new_leader_is_a_leader_change() -> None:
    with running(settings=SETTINGS) as world:
        world.create_topic("t", 4)
        for partition in range(4):
            world.leader("t", partition)
        before = {node_id: scrape(world, node_id)("varve_leader_changes_total") for node_id in world.nodes}
        gone = world.leader("t")
        led = sum(world.leader("t", partition) == gone for partition in range(4))
        is_controller = world.nodes[gone].metadata.replica.is_leader  # type: ignore[union-attr]
        world.kill(gone)
        world.loop.run_for(5.0)
        after = sum_of(world, "varve_leader_changes_total")
        assert after - sum(before[node_id] for node_id in world.nodes) == led + is_controller


def test_groups_show_what_they_have_committed_and_how_far_behind_they_are() -> None:
    with running(settings=SETTINGS | FEW) as world:
        world.create_topic("t", 2)
        world.produce("t", *[b"x"] * 10)
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "t", {0: 7, 1: 0})) == [0, 0]
        world.loop.run_for(1.0)  # followers learn the high watermark
        seen = scrape(world, node_id)
        assert seen("varve_group_committed_offset", group="g", topic="t", partition="0") == 7
        assert seen("varve_group_lag_records", group="g", topic="t", partition="0") == 3
        assert seen("varve_group_lag_records", group="g", topic="t", partition="1") == 0
        others = [each for each in world.nodes if each != node_id]
        assert not any(scrape(world, each).all("varve_group_committed_offset") for each in others)


def test_offsets_of_groups_with_long_names_are_only_counted() -> None:
    """A name may have 32 KB, and each offset is a line with it."""
    with running(1, settings=SETTINGS | FEW) as world:
        world.create_topic("t", 2, replication_factor=1)
        name = "g" * (MAX_NAME + 1)
        node_id = coordinator(world, name)
        commit(world, node_id, commit_request(name, "t", {0: 0, 1: 0}))
        commit(world, node_id, commit_request(name[1:], "t", {0: 0}))
        seen = scrape(world, node_id)
        assert seen("varve_group_offsets_left_out") == 2
        assert seen("varve_group_committed_offset", group=name[1:]) == 0


def test_an_open_transaction_shows_its_age_and_holds_the_last_stable_offset() -> None:
    with running(settings=SETTINGS | FEW) as world:
        world.create_topic("t")
        world.produce("t", b"a")
        client = Client(world)
        producer = client.new_producer()
        assert client.add(producer, "t", 0) == [0]
        assert client.produce(producer, "t") == 0
        world.loop.run_for(20.0)
        seen = scrape(world, client.coordinator())
        assert seen("varve_transactions", state="open") == 1
        assert 20 <= seen("varve_transaction_oldest_age_seconds") < 22
        seen = scrape(world, world.leader("t"))
        assert seen("varve_partition_high_watermark", topic="t") == 2
        assert seen("varve_partition_last_stable_offset", topic="t") == 1

        client.end(producer)
        seen = scrape(world, client.coordinator())
        assert seen("varve_transactions", state="open") == 0
        assert seen("varve_transaction_oldest_age_seconds") == 0


def test_throttled_clients_are_counted_by_quota() -> None:
    with running(1, settings=SETTINGS) as world:
        quotas = world.nodes[1].quotas
        quotas.set_limits(((CLIENT_ID, None),), {PRODUCER_BYTE_RATE: 100.0})
        assert quotas.charge_produce("c", 1000) == 0
        assert quotas.charge_produce("c", 500) == 5000
        seen = scrape(world)
        assert seen("varve_quota_throttles_total", quota="producer_byte_rate") == 1
        assert seen("varve_quota_throttle_seconds_total", quota="producer_byte_rate") == 5
        assert seen("varve_quota_throttles_total", quota="consumer_byte_rate") == 0


def test_passes_of_compaction_are_counted() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("table", replication_factor=1, configs={"cleanup.policy": "compact"})
        for number in range(20):
            world.produce("table", b"%d" % number, key=b"k")
        before = scrape(world)
        assert before("varve_log_cleaner_compactions_total") == 0
        answer = compact(world, compact_request("table"))
        after = scrape(world)
        assert after("varve_log_cleaner_compactions_total") == 1
        assert after("varve_log_cleaner_duration_seconds_count") == 1
        removed = answer.bytes_before - answer.bytes_after
        assert after("varve_log_cleaner_cleaned_bytes_total") == removed > 0
        size_before = before("varve_topic_bytes", topic="table", cleanup="compact")
        assert 0 < after("varve_topic_bytes", topic="table", cleanup="compact") < size_before


def test_flushes_and_stalls_are_timed() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("t", replication_factor=1)
        before = scrape(world)
        world.produce("t", b"a")
        world.loop.call_soon(world.loop.take_time, 0.5)
        world.loop.run_for(1.0)
        after: Scrape = scrape(world)
        assert after("varve_flush_duration_seconds_count") > before("varve_flush_duration_seconds_count")
        assert 0.45 <= after("varve_loop_stall_longest_seconds") <= 0.5


def test_disk_space_is_that_of_the_volume() -> None:
    with running(1, settings=SETTINGS) as world:
        seen = scrape(world)
        assert seen("varve_disk_free_bytes") == world.disks[1].free_bytes()
        assert seen("varve_disk_size_bytes") == world.disks[1].total_bytes()
        assert seen("varve_disk_low") == 0
