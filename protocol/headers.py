"""Request and response headers (KIP-482).

request v1    api_key int16, api_version int16, correlation_id int32, client_id nullable string
request v2    the same (the client id keeps its int16 length), then tagged fields
response v0   correlation_id int32
response v1   the same, then tagged fields
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from protocol.api_keys import FLEXIBLE_FROM, ApiKey, is_flexible
from protocol.errors import ProtocolError
from protocol.wire import MAX_HEADER_TAGS, bad_length, skip_tags, undecodable

_REQUEST_HEAD = Struct(">hhih")
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AND_NO_TAGS = Struct(">ix")
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_LATEST_API_VERSIONS = 4
_NEVER = 32767


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_header_of: Callable[[tuple[int, int, int, str | None]], RequestHeader] = partial(
    tuple.__new__, RequestHeader
)


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Decodes the header of a request. Returns it and the position of the body. Raises ProtocolError.

    A request with an unknown API key is decoded with header v1, and the caller closes the connection. An ApiVersions
    request of an unknown version is decoded with header v1, too. It has to be answered, and its body is not needed for
    that (`messages.api_versions.unsupported_version_body`).
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
        pos = 10
        client_id = None
        if length != -1:
            end = pos + length
            if length < 0 or end > len(frame):
                raise bad_length("RequestHeader.client_id", length)
            client_id = str(frame[pos:end], "utf-8")
            pos = end
        if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) and (
            api_key != _API_VERSIONS or api_version <= _LATEST_API_VERSIONS
        ):
            count = frame[pos]
            pos += 1
            if count:
                pos, _ = skip_tags(frame, pos, count, MAX_HEADER_TAGS)
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise undecodable("RequestHeader", error) from None
    return _header_of((api_key, api_version, correlation_id, client_id)), pos


def encode_request_header(header: RequestHeader) -> bytes:
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    head = _REQUEST_HEAD.pack(header.api_key, header.api_version, header.correlation_id, length)
    return head + client_id + (b"\0" if is_flexible(header.api_key, header.api_version) else b"")


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header of a response. ApiVersions has response header v0 in every version, so that a client that asks with an
    unknown version can read the answer (KIP-511)."""
    if api_key != _API_VERSIONS and is_flexible(api_key, api_version):
        return _CORRELATION_ID_AND_NO_TAGS.pack(correlation_id)
    return _CORRELATION_ID.pack(correlation_id)


def parse_response_header(api_key: int, api_version: int, frame: memoryview) -> tuple[int, int]:
    """For clients. Returns the correlation id and the position of the body. Raises ProtocolError."""
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError(f"response of {len(frame)} bytes has no correlation id")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    pos = _CORRELATION_ID.size
    if api_key != _API_VERSIONS and is_flexible(api_key, api_version):
        try:
            pos, _ = skip_tags(frame, pos + 1, frame[pos], MAX_HEADER_TAGS)
        except IndexError as error:
            raise undecodable("ResponseHeader", error) from None
    return correlation_id, pos
