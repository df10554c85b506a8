"""kafka-python encodes every message that it knows to the same bytes. It is a second oracle beside kio."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header, response_header
from protocol.schema import Message
from tests.protocol.kafka_python_oracle import LACKS, classes, reencoded, theirs
from tests.protocol.strategies import KAFKA_MESSAGES, all_versions, messages

CASES = [
    (cls, version) for cls in KAFKA_MESSAGES if cls.__name__ not in LACKS for version in all_versions(cls)
]


def name(value: Any) -> Any:
    return value if isinstance(value, int) else value.__name__


def test_the_messages_that_kafka_python_lacks_are_listed() -> None:
    """If a release of kafka-python adds one of them, it must be compared, too."""
    assert {cls.__name__ for cls in KAFKA_MESSAGES} - set(classes()) == LACKS


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name)
@settings(max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kafka_python_encodes_the_same_bytes(cls: type[Message], version: int, data: Any) -> None:
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    assert theirs(message, version).encode(version=version) == encoded
    assert reencoded(cls, version, encoded) == encoded


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name)
def test_kafka_python_encodes_the_same_header(cls: type[Message], version: int) -> None:
    message = classes()[cls.__name__](version=version)
    message.with_header(correlation_id=7, **({"client_id": "me"} if message.is_request() else {}))
    framed = bytes(message.encode(header=True, framed=True))
    body = bytes(message.encode())
    key = ApiKey(message.API_KEY)
    if message.is_request():
        header = encode_request_header(RequestHeader(key, version, 7, "me"))
    else:
        header = response_header(key, version, 7)
    assert framed == struct.pack(">i", len(header) + len(body)) + header + body
