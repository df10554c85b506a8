"""The head of an HTTP request, and the head of its answer (RFC 9112). No I/O.

Only what the endpoint serves is understood: GET, a path, and no body. A query is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

#: A request whose head is longer is refused. Prometheus sends some 300 bytes, browsers up to 2 KB.
MAX_HEAD_BYTES = 8 << 10
HEAD_END = b"\r\n\r\n"
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: list[bytes]
    """In parts, because metrics are made in parts. Nobody changes them afterwards."""
    content_type: str = PLAIN


class RefusedError(Exception):
    """The request cannot be served. `answer` says why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.answer = text(status, reason)


def text(status: HTTPStatus, line: str) -> Answer:
    return Answer(status, [line.encode() + b"\n"])


def path_of(head: bytes) -> str:
    """The path that a request asks for. Raises RefusedError."""
    line = head.split(b"\r\n", 1)[0]
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
    if words[0] != "GET":
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served")
    return words[1].partition("?")[0]


def head_of(answer: Answer) -> bytes:
    """Every answer ends its connection: a scrape comes every few seconds, and state between two would need limits."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {sum(map(len, answer.body))}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")
    return "\r\n".join(lines).encode("latin-1") + HEAD_END
