"""A request that names many things is served in steps, its cost grows linearly with the number of things, and an answer
does not repeat a thing that is named again and again."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.config.resources import Resources
from broker.handlers import APIS
from broker.serving.api import Api
from broker.serving.dispatcher import MAX_REQUEST_ELEMENTS
from protocol.api_keys import ApiKey
from protocol.codec import decoder, encode
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from protocol.schema import Message
from tests.broker.asking import ask
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator
from tests.broker.handlers.hostile.attack import Attack
from tests.broker.handlers.hostile.long_arrays import array_paths, long_request
from tests.broker.handlers.hostile.requests import HostileRequest
from tests.broker.world import running
from tests.simulator.loop import SimulatedLoop

#: The largest allowed ratio of times for ten times as many elements. Caches and garbage collection make it more than
#: ten.
MAX_RATIO = 40
#: Shorter times are not judged: on a busy machine a long array that costs 0.05 s can take 0.2 s. Squares cost far more.
LEAST_S = 0.4
#: CPU seconds of any callback of a node, five times what is measured. Without steps some requests take more.
MAX_CALLBACK_S = 0.05
#: An array is at fault if it takes longer in each of so many worlds. Another process, or the host of a virtual machine,
#: can make one callback long, but hardly that of the same array again.
ATTEMPTS = 3
#: Objects in dead cycles that a request may leave: those of its connection.
MAX_DEAD = 1000


@pytest.fixture(autouse=True)
def _own_garbage_only() -> Iterator[None]:
    """To look through what the tests before have left takes a collection half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU seconds of each callback on any node."""
    times = [0.0]
    run_callback: Callable[..., None] = SimulatedLoop._run_callback

    def timed(*arguments: Any) -> None:
        began = time.thread_time()
        run_callback(*arguments)
        times.append(time.thread_time() - began)

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedLoop, "_run_callback", timed)
        yield times


@contextmanager
def without_collector() -> Iterator[None]:
    """What dies in cycles stays until it is looked for."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def longest_callback_s(
    monkeypatch: pytest.MonkeyPatch, api: Api, version: int, path: str, count: int, distinct: bool
) -> float:
    body = long_request(api.request, version, path, count, distinct=distinct)
    with running(settings=FEW) as world:
        attack = Attack(world)
        with measured(monkeypatch) as times:
            attack.send(1, HostileRequest(api, version, "app", body))
            world.loop.run_for(1)
    return max(times)


def check_growth(monkeypatch: pytest.MonkeyPatch, api: Api, version: int, path: str, distinct: bool) -> None:
    few, many = (longest_callback_s(monkeypatch, api, version, path, n, distinct) for n in (1000, 10_000))
    assert many < max(LEAST_S, MAX_RATIO * few), (api.key.name, version, path, distinct, few, many)


def many(api: Api, path: str, *, distinct: bool) -> Message:
    """A request that names about as many things as it may."""
    for count in (9_900, 6_600, 4_900):
        body = long_request(api.request, api.max_version, path, count, distinct=distinct)
        frame = memoryview(encode(body, api.max_version))
        try:
            decoder(api.request, api.max_version)(frame, 0, MAX_REQUEST_ELEMENTS)
        except ProtocolError:
            continue
        return body
    raise AssertionError("so many elements are accepted")


def check_steps(monkeypatch: pytest.MonkeyPatch, api: Api, distinct: bool) -> None:
    paths = list(array_paths(api.request, api.max_version))
    for _ in range(ATTEMPTS):
        longest_s = longest_callbacks_s(monkeypatch, api, paths, distinct)
        paths = [path for path in paths if longest_s[path] >= MAX_CALLBACK_S]
        if not paths:
            return
    raise AssertionError({path: longest_s[path] for path in paths})


def longest_callbacks_s(
    monkeypatch: pytest.MonkeyPatch, api: Api, paths: list[str], distinct: bool
) -> dict[str, float]:
    """For each path, of a request with a long array there."""
    longest_s = {}
    with running(settings=FEW) as world, without_collector():
        attack = Attack(world)
        for path in paths:
            body = many(api, path, distinct=distinct)
            with measured(monkeypatch) as times:
                attack.send(1, HostileRequest(api, api.max_version, "app", body))
                world.loop.run_for(1)
            longest_s[path] = max(times)
            del body
            # The latest answer, and what waits for members that do not come, are still there.
            dead = gc.collect()
            assert dead < MAX_DEAD, (path, dead)
    return longest_s


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_every_long_array_is_served_in_steps_and_leaves_no_cycles(
    monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    check_steps(monkeypatch, api, distinct=True)


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_every_long_array_of_equal_things_is_served_in_steps(
    monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    check_steps(monkeypatch, api, distinct=False)


API_OF = {api.key: api for api in APIS}


@pytest.mark.slow  # it measures CPU time, which a busy machine disturbs
@pytest.mark.parametrize(
    "key, path",
    [
        (ApiKey.DELETE_TOPICS, ".topics"),
        (ApiKey.ALTER_CLIENT_QUOTAS, ".entries"),
        (ApiKey.DESCRIBE_GROUPS, ".groups"),
    ],
)
def test_the_time_for_a_long_array_grows_linearly(
    monkeypatch: pytest.MonkeyPatch, key: ApiKey, path: str
) -> None:
    api = API_OF[key]
    check_growth(monkeypatch, api, api.max_version, path, distinct=True)


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [True, False], ids=["distinct", "repeated"])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_the_time_for_every_long_array_grows_linearly(
    monkeypatch: pytest.MonkeyPatch, api: Api, distinct: bool
) -> None:
    for path in array_paths(api.request, api.max_version):
        check_growth(monkeypatch, api, api.max_version, path, distinct)


def test_a_group_is_described_once_however_often_it_is_named() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", replication_factor=1)
        coordinator(world, "g")
        assert commit(world, 1, commit_request("g", "foo", {0: 7})) == [0]
        named = ["g"] * 3
        classic = ask(
            world, 1, ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=named), DescribeGroupsResponse
        )
        assert [group.group_id for group in classic.groups] == ["g"]
        consumer = ask(
            world,
            1,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            1,
            ConsumerGroupDescribeRequest(group_ids=named),
            ConsumerGroupDescribeResponse,
        )
        assert [group.group_id for group in consumer.groups] == ["g"]
        wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in named]
        fetched = ask(
            world, 1, ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=wanted), OffsetFetchResponse
        )
        assert [(group.error_code, len(group.topics)) for group in fetched.groups] == [
            (ErrorCode.NONE, 1),
            (ErrorCode.INVALID_REQUEST, 0),
            (ErrorCode.INVALID_REQUEST, 0),
        ]


def test_an_offset_that_is_named_often_is_deleted_once() -> None:
    """Each record has the id of the group. An offset named a thousand times would make gigabytes of records."""
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", replication_factor=1)
        coordinator(world, "g")
        assert commit(world, 1, commit_request("g", "foo", {0: 7})) == [0]
        shards = [world.replica(1, "__consumer_offsets", partition) for partition in range(3)]
        before = sum(replica.next_offset for replica in shards)
        places = [OffsetDeleteRequestPartition(partition_index=0)] * 1000
        topics = [OffsetDeleteRequestTopic(name="foo", partitions=places)]
        body = OffsetDeleteRequest(group_id="g", topics=topics)
        answer = ask(world, 1, ApiKey.OFFSET_DELETE, 0, body, OffsetDeleteResponse)
        assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}
        assert sum(replica.next_offset for replica in shards) == before + 1
        assert committed(world, 1, "g") == {}


def test_settings_of_many_groups_are_described_in_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has settings whether it exists or not."""
    api = API_OF[ApiKey.DESCRIBE_CONFIGS]
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{number}", configuration_keys=None)
        for number in range(2000)
    ]
    most = [0]
    in_turn = [0]
    described = Resources.describe_group

    def counted(*arguments: Any) -> Any:
        in_turn[0] += 1
        most[0] = max(most[0], in_turn[0])
        return described(*arguments)

    monkeypatch.setattr(Resources, "describe_group", counted)
    with running(settings=FEW) as world:
        attack = Attack(world)
        world.loop.after_callback.append(lambda: in_turn.__setitem__(0, 0))
        body = DescribeConfigsRequest(resources=resources)
        attack.send(1, HostileRequest(api, 4, "app", body))
    assert 0 < most[0] < 100


def test_many_groups_are_answered_in_the_order_of_the_request() -> None:
    with running(size=1, settings=FEW) as world:
        coordinator(world, "g")
        names = [f"g{number}" for number in range(2001)]
        body = DeleteGroupsRequest(groups_names=names)
        answer = ask(world, 1, ApiKey.DELETE_GROUPS, 2, body, DeleteGroupsResponse)
        assert [each.group_id for each in answer.results] == names
        assert {each.error_code for each in answer.results} == {ErrorCode.GROUP_ID_NOT_FOUND}
