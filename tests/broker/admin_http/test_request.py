"""Heads of HTTP requests and answers."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from broker.admin_http.request import Answer, RefusedError, head_of, path_of


@pytest.mark.parametrize(
    ("head", "path"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: n1", "/metrics"),
        (b"GET /metrics HTTP/1.0", "/metrics"),
        (b"GET /readyz?verbose=1 HTTP/1.1\r\nHost: n1", "/readyz"),
        (b"GET / HTTP/1.1", "/"),
    ],
)
def test_the_path_is_found(head: bytes, path: str) -> None:
    assert path_of(head) == path


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /metrics HTTP/1.1", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"HEAD /metrics HTTP/1.1", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET /metrics", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/2", HTTPStatus.BAD_REQUEST),
        (b"GET  /metrics HTTP/1.1", HTTPStatus.BAD_REQUEST),
        (b"GET http://n1/metrics HTTP/1.1", HTTPStatus.BAD_REQUEST),
        (b"", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", HTTPStatus.BAD_REQUEST),
        (b"\x00\x00\x00\x2a\x00\x12\x00\x03", HTTPStatus.BAD_REQUEST),
    ],
)
def test_what_is_not_served_is_refused(head: bytes, status: HTTPStatus) -> None:
    with pytest.raises(RefusedError) as refused:
        path_of(head)
    assert refused.value.answer.status is status


def test_the_length_is_that_of_all_parts() -> None:
    head = head_of(Answer(HTTPStatus.OK, [b"abc", "ä".encode()], "text/plain"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 5\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert b"Allow" not in head


def test_a_wrong_method_is_told_the_right_one() -> None:
    assert b"\r\nAllow: GET\r\n" in head_of(Answer(HTTPStatus.METHOD_NOT_ALLOWED, []))
