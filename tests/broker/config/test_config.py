"""Settings of a node: their sources, and which values are refused."""

from __future__ import annotations

import pytest

from broker.config.kafka_keys import is_kafka_key
from broker.config.node_config import Address, ConfigError, Listener, NodeConfig
from broker.config.sources import NODE_KEYS, key_of_variable, load, parse_properties
from tests.broker.world import running

UNCOORDINATED = "varve.unsafe.uncoordinated.compaction"
THREE = "1@localhost:19093,2@localhost:29093,3@localhost:39093"


def flags(**more: str) -> dict[str, str]:
    """Flags with dots written as underscores."""
    return {name.replace("_", "."): value for name, value in more.items()}


def test_a_node_starts_without_any_setting_as_a_cluster_of_one_reachable_from_this_machine_only() -> None:
    config = load().config
    assert config.quorum_voters == {1: Address("localhost", 9093)}
    assert {listener.host for listener in config.listeners} == {"localhost"}
    assert config.advertised_address(config.client_listeners[0]) == Address("localhost", 9092)
    assert config.given == frozenset()


def test_keys_are_named_as_kafka_names_them() -> None:
    """A rename of one of our modules once renamed this key, too."""
    assert is_kafka_key("broker.heartbeat.interval.ms")
    assert not is_kafka_key("broker.replication.heartbeat.interval.ms")


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    file = {"num.partitions": "2", "node.id": "2", "min.insync.replicas": "2", "log.dirs": "/from-file"}
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NODE_ID": "3"}
    config = load(properties=file, environ=environ, flags=flags(num_partitions="4")).config
    assert (config.num_partitions, config.node_id, config.log_dir) == (4, 3, "/from-file")
    assert config.fetch_max_bytes == NodeConfig().fetch_max_bytes
    assert {"num.partitions", "node.id", "log.dirs"} < config.given


def test_the_compose_environment_is_understood() -> None:
    """The environment of docker-compose.yml, and variables that testcontainers and Apache's image set."""
    loaded = load(
        environ={
            "CLUSTER_ID": "dmFydmUtY29tcG9zZS1sb2",
            "KAFKA_NODE_ID": "2",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_LISTENERS": "INTERNAL://0.0.0.0:9092,EXTERNAL://0.0.0.0:29092,CONTROLLER://0.0.0.0:9093",
            "KAFKA_ADVERTISED_LISTENERS": "INTERNAL://kafka-2:9092,EXTERNAL://localhost:29092",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "PATH": "/bin",
        }
    )
    config = loaded.config
    assert config.cluster_id == "dmFydmUtY29tcG9zZS1sb2"
    assert list(config.quorum_voters) == [1, 2, 3]
    assert config.peer_address == Address("kafka-2", 9093)
    assert config.controller_endpoint == Listener("CONTROLLER", "0.0.0.0", 9093)
    assert [listener.name for listener in config.client_listeners] == ["INTERNAL", "EXTERNAL"]
    assert config.advertised_address(config.client_listeners[0]) == Address("kafka-2", 9092)
    assert config.offsets_topic_replication_factor == 1
    assert loaded.warnings == []
    assert "KAFKA_HEAP_OPTS" in loaded.notes[0]
    assert "transaction.state.log.min.isr" in loaded.notes[1]


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_A__B___C_D", "a_b-c.d"),
        ("KAFKA_VARVE_ELECTION_TIMEOUT_MS", "varve.election.timeout.ms"),
    ],
)
def test_variables_are_named_as_in_apaches_image(variable: str, key: str) -> None:
    assert key_of_variable(variable) == key


def test_an_unknown_key_is_refused_in_files_and_flags_with_the_nearest_known_name() -> None:
    with pytest.raises(
        ConfigError, match=r"log\.segment\.byte in server\.properties: .*did you mean log\.segment\.bytes\?"
    ):
        load(properties={"log.segment.byte": "1"}, properties_name="server.properties")
    with pytest.raises(ConfigError, match=r"nodeid in the command line"):
        load(flags={"nodeid": "1"})


def test_an_unknown_variable_is_only_a_warning() -> None:
    loaded = load(environ={"KAFKA_LISTENER": "x", "KAFKA_BOOTSTRAP_SERVERS": "x"})
    assert len(loaded.warnings) == 2
    assert "did you mean listeners?" in loaded.warnings[1]


def test_every_key_is_a_key_of_kafka_or_has_our_prefix() -> None:
    ours = {"cluster.id", "log.min.free.bytes"}
    for key in NODE_KEYS.values():
        for name in (key.name, *(scaled for scaled, _ in key.scaled)):
            assert is_kafka_key(name) or name.startswith("varve.") or name in ours, name
        assert key.doc.endswith(".") or key.doc.endswith(")"), key.name


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.minutes": "1", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_a_time_wins(given: dict[str, str], retention_ms: int) -> None:
    assert load(properties=given).config.log_retention_ms == retention_ms


def test_synonyms_of_older_files_are_understood() -> None:
    config = load(properties={"broker.id": "7", "log.dir": "/data"}).config
    assert (config.node_id, config.log_dir) == (7, "/data")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (flags(node_id="one"), "node.id in the command line: expected a whole number, not 'one'"),
        (flags(node_id="-1"), "from 0 to"),
        (flags(num_partitions="0"), "num.partitions"),
        (flags(process_roles="controller"), "every Varve node serves clients"),
        (flags(process_roles="broker,zookeeper"), "'zookeeper'"),
        (flags(listeners="PLAINTEXT://:9092"), "there is none called CONTROLLER"),
        (flags(listeners="CONTROLLER://:9092"), "none for clients"),
        (flags(listeners="PLAINTEXT://h:1,PLAINTEXT://h:2,CONTROLLER://:9"), "PLAINTEXT stands twice"),
        (flags(listeners="PLAINTEXT://h:1,CONTROLLER://h:1"), "the same address"),
        (flags(varve_metrics_port="9092"), "varve.metrics.port: the listener PLAINTEXT has port 9092, too"),
        (flags(listeners="PLAINTEXT://h,CONTROLLER://h:1"), "expected HOST:PORT"),
        (flags(listeners="PLAINTEXT://h:70000,CONTROLLER://h:1"), "expected HOST:PORT"),
        (flags(listeners="PLAINTEXT://::1:9092,CONTROLLER://h:1"), "in brackets"),
        (flags(listeners="SASL_SSL://h:2,CONTROLLER://h:1"), "only PLAINTEXT is built"),
        (flags(listener_security_protocol_map="PLAINTEXT:SSL"), "PLAINTEXT wants SSL"),
        (flags(advertised_listeners="OTHER://h:1"), "no listener called OTHER"),
        (flags(advertised_listeners="PLAINTEXT://0.0.0.0:9092"), "no client can connect"),
        (flags(inter_broker_listener_name="OTHER"), "no listener OTHER"),
        (flags(listeners="PLAINTEXT://h:0,CONTROLLER://h:1"), "PLAINTEXT needs a port"),
        (flags(controller_quorum_voters="localhost:9093"), "expected NODE_ID@HOST:PORT"),
        (flags(controller_quorum_voters="1@a:1,1@b:1"), "node 1 stands twice"),
        (flags(controller_quorum_voters="1@a:9093,2@a:9093"), "the same address"),
        (flags(controller_quorum_voters=THREE), "found at port 19093"),
        (flags(node_id="4", controller_quorum_voters=THREE), "this node (4) is not among them"),
        (flags(controller_quorum_bootstrap_servers="a:9093,b:9093"), "controller.quorum.voters"),
        (flags(log_dirs="/a,/b"), "exactly one directory"),
        (flags(message_max_bytes="200000000"), "can never arrive"),
        (flags(authorizer_class_name="org.apache.kafka.AclAuthorizer"), "everybody would be let in"),
        (flags(security_inter_broker_protocol="SSL"), "only PLAINTEXT"),
        ({"varve.election.timeout.ms": "200"}, "at least three times"),
        ({"varve.loop": "trio"}, "uvloop, asyncio"),
        (flags(auto_create_topics_enable="yes"), "expected true or false"),
        (
            {UNCOORDINATED: "true", **flags(listeners="PLAINTEXT://:9092,CONTROLLER://localhost:9093")},
            "every listener must be on localhost",
        ),
    ],
)
def test_invalid_settings_are_refused_in_plain_words(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=given)
    assert words in str(caught.value)


def test_what_destroys_data_is_set_on_the_command_line_only() -> None:
    """And only where nobody else's data can be (above)."""
    assert load(flags={UNCOORDINATED: "true"}).config.uncoordinated_compaction
    with pytest.raises(ConfigError, match=r"in server\.properties: it destroys data"):
        load(properties={UNCOORDINATED: "true"}, properties_name="server.properties")
    with pytest.raises(ConfigError, match="in KAFKA_VARVE_UNSAFE_UNCOORDINATED_COMPACTION: it destroys data"):
        load(environ={"KAFKA_VARVE_UNSAFE_UNCOORDINATED_COMPACTION": "TRUE"})
    # What `varve start --check` prints can be used as a file.
    assert not load(properties={UNCOORDINATED: "false"}).config.uncoordinated_compaction


def test_ipv6_addresses_stand_in_brackets() -> None:
    config = load(flags=flags(listeners="PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093")).config
    assert config.listeners[0].host == "::1"
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_listening_everywhere_without_an_advertised_address_is_a_warning() -> None:
    loaded = load(flags=flags(listeners="PLAINTEXT://:9092,CONTROLLER://:9093"))
    assert "clients on other machines" in loaded.warnings[0]
    assert loaded.config.advertised_address(loaded.config.client_listeners[0]) == Address("localhost", 9092)


def test_the_properties_syntax_is_javas() -> None:
    text = r"""
    # comment
    ! comment
    node.id=1
    listeners = PLAINTEXT://:9092,\
        CONTROLLER://:9093
    broker.rack : r\u00e4ck
    log.dirs /data/with\ space

    empty=
    node.id=2
    """
    assert parse_properties(text) == {
        "node.id": "2",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "broker.rack": "räck",
        "log.dirs": "/data/with space",
        "empty": "",
    }


def test_a_node_starts_with_the_shortest_timeouts_that_are_accepted() -> None:
    shortest = {"varve.election.timeout.ms": "150", "varve.heartbeat.interval.ms": "5"}
    with running(size=1, settings=shortest) as world:
        world.create_topic("foo", replication_factor=1)
    for name, value in shortest.items():
        with pytest.raises(ConfigError, match=name):
            load(flags={**shortest, name: str(int(value) - 1)})
