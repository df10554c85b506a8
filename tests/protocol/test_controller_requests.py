"""Requests between nodes and their results survive the wire, and what is no such body is refused."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.controller.operations import OPERATIONS, VERSION
from protocol.controller.request import Request, Result
from protocol.controller.settings import AlterConfigs, AlterConfigsResult, AlteredResource
from protocol.controller.topics import CreateTopics, NewTopic
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.protocol.controller_bodies import (
    decode_request,
    decode_result,
    encode_request,
    encode_result,
)
from tests.protocol.strategies import messages

FEW = settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("operation", OPERATIONS)
@FEW
@given(data=st.data())
def test_a_request_survives_the_wire(operation: int, data: Any) -> None:
    request = data.draw(messages(OPERATIONS[operation][0], VERSION))
    assert decode_request(*encode_request(request)) == request
    assert encode_request(request)[0] == operation


@pytest.mark.parametrize("operation", OPERATIONS)
@FEW
@given(data=st.data())
def test_a_result_survives_the_wire(operation: int, data: Any) -> None:
    request_class, result_class = OPERATIONS[operation]
    request = data.draw(messages(request_class, VERSION))
    result = data.draw(messages(result_class, VERSION))
    if request.is_answered_by(result):
        assert decode_result(request, encode_result(result)) == result
    else:
        with pytest.raises(ProtocolError):
            decode_result(request, encode_result(result))


@pytest.mark.parametrize("operation", OPERATIONS)
@FEW
@given(data=st.data())
def test_a_request_that_is_cut_short_or_has_a_tail_is_refused(operation: int, data: Any) -> None:
    body = encode_request(data.draw(messages(OPERATIONS[operation][0], VERSION)))[1]
    cut = data.draw(st.integers(0, len(body) - 1))
    for malformed in (None, body[:cut], body + b"\0"):
        with pytest.raises(ProtocolError):
            decode_request(operation, malformed)


@pytest.mark.parametrize("operation", OPERATIONS)
@given(body=st.binary(max_size=40))
def test_any_bytes_are_a_request_or_refused(operation: int, body: bytes) -> None:
    try:
        request = decode_request(operation, body)
    except ProtocolError:
        return
    once = encode_request(request)
    assert encode_request(decode_request(*once)) == once


def test_an_operation_that_is_not_known_is_an_unsupported_version() -> None:
    with pytest.raises(KafkaError) as refusal:
        decode_request(max(OPERATIONS) + 1, b"")
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("request_class", "result_class"), OPERATIONS.values())
def test_the_table_names_the_result_that_the_request_names(
    request_class: type[Request[Any]], result_class: type[Result]
) -> None:
    """A type checker believes the class of the request, and the decoder the table."""
    (base,) = request_class.__orig_bases__  # type: ignore[attr-defined]
    assert typing.get_args(base) == (result_class,)


def test_texts_of_clients_may_be_longer_than_an_int16_counts() -> None:
    request = CreateTopics(topics=[NewTopic(name="x" * 40_000)])
    assert decode_request(*encode_request(request)) == request


def test_a_result_without_an_entry_for_each_item_is_no_answer() -> None:
    resource = AlteredResource(resource_type=2, name="foo", operations=[])
    request = AlterConfigs(resources=[resource], replaces_all=False, validate_only=False)
    with pytest.raises(ProtocolError, match="AlterConfigsResult"):
        decode_result(request, encode_result(AlterConfigsResult(resources=[])))


def test_golden_bytes() -> None:
    operation, body = encode_request(CreateTopics(topics=[NewTopic(name="foo", num_partitions=3)]))
    assert (operation, body.hex()) == (6, "0204666f6f00000003ffff010100000000")
