"""Codecs that work in steps read and write the same as the others, and pause often."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import decode, encode, encode_in_steps, step_decoder
from protocol.errors import ProtocolError
from protocol.messages import ALL_MESSAGES
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message
from protocol.wire import ELEMENTS_PER_STEP
from tests.protocol.strategies import all_versions, messages

_T = TypeVar("_T")

EVERY = [(cls, version) for cls in ALL_MESSAGES for version in all_versions(cls)]


def run(steps: Generator[None, None, _T]) -> tuple[_T, int]:
    """The result, and how many pauses there were before it."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(("cls", "version"), EVERY, ids=lambda x: x if isinstance(x, int) else x.__name__)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_the_same_bytes_and_the_same_message(cls: type[Message], version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(cls, version))
    encoded = encode(message, version)
    parts, _ = run(encode_in_steps(message, version))
    assert b"".join(parts) == encoded
    result, _ = run(step_decoder(cls, version)(memoryview(encoded), 0))
    assert result == decode(cls, version, memoryview(encoded))


def test_a_long_message_is_read_and_written_with_many_pauses() -> None:
    count = 10 * ELEMENTS_PER_STEP
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}") for i in range(count)])
    parts, pauses = run(encode_in_steps(request, 9))
    assert pauses > 10
    (decoded, _), pauses = run(step_decoder(MetadataRequest, 9)(memoryview(b"".join(parts)), 0))
    assert decoded == request
    assert pauses > 10


def test_a_message_that_is_malformed_behind_some_steps_is_refused() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (2 * ELEMENTS_PER_STEP))
    data = memoryview(encode(request, 9))[:-20]
    with pytest.raises(ProtocolError, match="MetadataRequest"):
        run(step_decoder(MetadataRequest, 9)(data, 0))
