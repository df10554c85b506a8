"""The codecs of requests between nodes (`protocol.controller.operations`), all steps at once."""

from __future__ import annotations

from typing import Any

from protocol.codec import at_once
from protocol.controller import operations
from protocol.controller.request import Request, Result, ResultT


def encode_request(request: Request[Any]) -> tuple[int, bytes]:
    return at_once(operations.encode_request(request))


def decode_request(operation: int, body: bytes | None) -> Request[Any]:
    return at_once(operations.decode_request(operation, body))


def encode_result(result: Result) -> bytes:
    return at_once(operations.encode_result(result))


def decode_result(request: Request[ResultT], body: bytes | None) -> ResultT:
    return at_once(operations.decode_result(request, body))
