"""Headers, and the bytes of answers to ApiVersions."""

from __future__ import annotations

import importlib
import io

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from protocol.api_keys import FIRST_OWN_KEY, FLEXIBLE_FROM, ApiKey, is_flexible
from protocol.codec import encode
from protocol.headers import (
    RequestHeader,
    encode_request_header,
    parse_request_header,
    parse_response_header,
    response_header,
)
from protocol.messages import REQUESTS, RESPONSES
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, unsupported_version_body


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", [None, "", "kläger"])
def test_request_header_agrees_with_kio(version: int, client_id: str | None) -> None:
    kio_version = 2 if version >= 9 else 1
    kio_header = importlib.import_module(f"kio.schema.request_header.v{kio_version}.header").RequestHeader
    theirs = io.BytesIO()
    entity_writer(kio_header)(
        theirs,
        kio_header(request_api_key=0, request_api_version=version, correlation_id=-7, client_id=client_id),
    )
    header = RequestHeader(0, version, -7, client_id)
    assert encode_request_header(header) == theirs.getvalue()
    frame = memoryview(theirs.getvalue() + b"body")
    assert parse_request_header(frame) == (header, len(frame) - 4)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0000 0009 00000001 0001 61 02 00 01 ff 07 00") + b"body"
    assert parse_request_header(memoryview(frame)) == (RequestHeader(0, 9, 1, "a"), len(frame) - 4)


@pytest.mark.parametrize("api_key", [x for x in ApiKey if x < FIRST_OWN_KEY], ids=lambda key: key.name)
def test_flexible_versions_agree_with_kio(api_key: ApiKey) -> None:
    assert api_key_map[api_key] == api_key.name.lower()
    versions = sorted(schema_name_map[api_key_map[api_key]])
    first = FLEXIBLE_FROM.get(api_key, versions[-1] + 1)
    for version in {first - 1, first} & set(versions):
        module, _, name = schema_name_map[api_key_map[api_key]][version][EntityType.request].partition(":")
        request = getattr(importlib.import_module(module), name)
        assert is_flexible(api_key, version) == request.__flexible__


def test_declarations_agree_with_the_table() -> None:
    for classes in (REQUESTS, RESPONSES):
        for api_key, cls in classes.items():
            flexible = cls.__schema__.flexible
            first = flexible.first if flexible.first <= flexible.last else None
            assert first == FLEXIBLE_FROM.get(api_key)


@pytest.mark.parametrize(("api_key", "api_version"), [(999, 0), (999, 30), (18, 127), (17, 1)])
def test_unknown_and_never_flexible_requests_have_the_old_header(api_key: int, api_version: int) -> None:
    """ApiVersions of an unknown version must be answered, although the end of its header is unknown."""
    header = RequestHeader(api_key, api_version, 7, None)
    frame = api_key.to_bytes(2, "big") + api_version.to_bytes(2, "big") + b"\0\0\0\7" + b"\xff\xff"
    assert parse_request_header(memoryview(frame)) == (header, 10)


def test_response_headers_are_encoded_and_decoded() -> None:
    assert response_header(ApiKey.PRODUCE, 8, 7) == b"\0\0\0\7"
    assert response_header(ApiKey.PRODUCE, 9, 7) == b"\0\0\0\7\0"
    assert response_header(ApiKey.API_VERSIONS, 4, 7) == b"\0\0\0\7"
    assert parse_response_header(ApiKey.PRODUCE, 9, memoryview(b"\0\0\0\7\1\5\2abbody")) == (7, 9)
    assert parse_response_header(ApiKey.API_VERSIONS, 4, memoryview(b"\0\0\0\7\1")) == (7, 4)


def test_answer_to_an_unknown_version_of_api_versions() -> None:
    """Apache Kafka 4.3 answered a request of version 127 with these bytes."""
    answer = response_header(ApiKey.API_VERSIONS, 127, 7) + unsupported_version_body(0, 4)
    assert answer == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")


def test_answer_to_api_versions_3() -> None:
    """A compact array and tagged fields, but response header v0."""
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=0, max_version=11)])
    answer = response_header(ApiKey.API_VERSIONS, 3, 7) + encode(response, 3)
    assert answer == bytes.fromhex("00000007 0000 02 0000 0000 000b 00 00000000 00")
