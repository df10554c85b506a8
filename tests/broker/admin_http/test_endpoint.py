"""The HTTP endpoint of whole nodes: what it answers, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from broker.admin_http.endpoint import DEADLINE_S, MAX_CONNECTIONS, Endpoint
from broker.admin_http.request import MAX_HEAD_BYTES, Answer
from tests.broker.admin_http.http_client import PORT, SETTINGS, HttpClient, dial, get, send
from tests.broker.world import World, running


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running(1, settings=SETTINGS) as made:
        yield made


def test_a_node_that_serves_is_alive_and_ready(world: World) -> None:
    assert get(world, "/livez")[::2] == (200, "alive\n")
    assert get(world, "/readyz")[::2] == (200, "ready\n")


def test_metrics_have_the_content_type_of_prometheus(world: World) -> None:
    answer = get(world, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nvarve_node_ready 1.0\n" in answer.body


def test_other_paths_are_told_which_there_are(world: World) -> None:
    answer = get(world, "/health")
    assert answer[::2] == (404, "there is /metrics, /livez, /readyz\n")


def test_only_get_is_served(world: World) -> None:
    answer = send(world, b"DELETE /metrics HTTP/1.1\r\nHost: n1\r\n\r\n")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


def test_a_request_may_come_in_any_pieces(world: World) -> None:
    client = dial(world)
    for byte in b"GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n":
        client.transport.write(bytes([byte]))
    world.wait(lambda: client.is_lost)
    assert client.answer.status == 200


def test_a_head_that_is_too_long_is_refused(world: World) -> None:
    answer = send(world, b"GET /livez HTTP/1.1\r\nCookie: " + b"x" * MAX_HEAD_BYTES)
    assert answer.status == 431


def test_a_second_request_of_a_connection_is_not_served(world: World) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"
    assert send(world, request + request).body == "alive\n"


def test_a_connection_without_a_request_is_closed_after_the_deadline(world: World) -> None:
    client = dial(world)
    client.transport.write(b"GET /livez")
    began_s = world.loop.time()
    world.wait(lambda: client.is_lost)
    assert not client.received
    assert world.loop.time() - began_s == pytest.approx(DEADLINE_S, abs=0.5)


def test_a_client_that_does_not_read_is_closed_after_the_deadline(world: World) -> None:
    big = Answer(HTTPStatus.OK, [bytes(10 << 20)])
    endpoint = Endpoint(world.loop, {"/big": lambda reply: reply(big)})
    listening = world.network.of("other").listen("", PORT, endpoint.accept)
    world.loop.run_until_complete(listening)
    client = HttpClient()
    world.loop.run_until_complete(world.network.of("client").connect("other", PORT, lambda: client))
    client.transport.write(b"GET /big HTTP/1.1\r\n\r\n")
    began_s = world.loop.time()
    world.wait(lambda: bool(client.received))
    client.transport.pause_reading()
    world.wait(lambda: not endpoint.connections)
    assert world.loop.time() - began_s == pytest.approx(DEADLINE_S, abs=0.5)


def test_there_are_few_connections_at_a_time(world: World) -> None:
    waiting = [dial(world) for _ in range(MAX_CONNECTIONS)]
    one_more = dial(world)
    world.wait(lambda: one_more.is_lost)
    assert not one_more.received
    waiting.pop().transport.abort()
    assert world.nodes[1].admin._endpoint is not None
    connections = world.nodes[1].admin._endpoint.connections
    world.wait(lambda: len(connections) < MAX_CONNECTIONS)
    assert get(world, "/livez").status == 200
    for client in waiting:
        client.transport.abort()


def test_a_node_that_waits_for_others_is_alive_and_not_ready() -> None:
    world = World(3, 1, SETTINGS)
    try:
        world.start(1)
        # Its port opens some time after its start.
        world.loop.run_until(lambda: hasattr(world.nodes[1], "admin"), limit_s=30)
        world.loop.run_for(0.1)
        assert get(world, "/livez").status == 200
        assert get(world, "/readyz").status == 503
        assert "varve_node_ready 0.0" in get(world, "/metrics").body
        world.start(2)
        world.start(3)
        world.wait_ready()
        assert get(world, "/readyz").status == 200
    finally:
        world.loop.close()


def test_no_port_is_opened_unless_it_is_set() -> None:
    with running(1) as world, pytest.raises(ConnectionRefusedError):
        dial(world)
