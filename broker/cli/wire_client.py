"""Requests that the client library does not offer, over plain sockets. They work with Apache Kafka, too."""

from __future__ import annotations

import socket
from typing import TypeVar

from broker.cli.bootstrap import find_broker, nobody_answers, parse_addresses
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.wire import ask_on
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import Message

M = TypeVar("M", bound=Message)

_METADATA_VERSION = 4


class WireClient:
    """Sends requests to any broker of a cluster, or to a certain one. Raises CommandError if nobody answers."""

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server

    def ask(self, request: Message, version: int, response: type[M], timeout_s: float = TIMEOUT_S) -> M:
        """The answer of the first broker that answers. Each has `timeout_s`."""
        first = find_broker(self._bootstrap_server)
        others = [other for other in parse_addresses(self._bootstrap_server) if other != first]
        for address in (first, *others):
            try:
                return ask_at(*address, request, version, response, timeout_s)
            except ProtocolError as error:
                raise CommandError(f"{address} does not answer {type(request).__name__}: {error}") from None
            except OSError:
                continue
        raise nobody_answers(self._bootstrap_server)

    def address_of(self, node_id: int) -> tuple[str, int]:
        """Raises CommandError."""
        metadata = self.ask(
            MetadataRequest(topics=[], allow_auto_topic_creation=False), _METADATA_VERSION, MetadataResponse
        )
        broker = next((broker for broker in metadata.brokers if broker.node_id == node_id), None)
        if broker is None:
            raise CommandError(f"there is no broker {node_id}")
        return broker.host, broker.port

    def ask_broker(self, node_id: int, request: Message, version: int, response: type[M]) -> M:
        host, port = self.address_of(node_id)
        try:
            return ask_at(host, port, request, version, response)
        except (OSError, ProtocolError):
            raise CommandError(f"broker {node_id} does not answer at {host}:{port}") from None


def ask_at(
    host: str,
    port: int,
    request: Message,
    version: int,
    response: type[M],
    timeout_s: float | None = TIMEOUT_S,
) -> M:
    """`timeout_s` None: the answer may take as long as it wants. Raises OSError, ProtocolError."""
    with socket.create_connection((host, port), TIMEOUT_S if timeout_s is None else timeout_s) as connection:
        connection.settimeout(timeout_s)
        return ask_on(connection, request, version, response)


def check_error(error_code: int, message: str | None) -> None:
    """Raises CommandError if the answer is an error."""
    if error_code != ErrorCode.NONE:
        raise CommandError(error_text(error_code, message))


def error_text(error_code: int, message: str | None) -> str:
    """The error of a broker as one line for the terminal."""
    name = ErrorCode(error_code).name
    return f"{message} ({name})" if message else name
