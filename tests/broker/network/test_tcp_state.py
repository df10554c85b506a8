"""A client that is gone is noticed while its connection is not read."""

from __future__ import annotations

import socket
import sys

import pytest

from broker.network.tcp_state import is_closed_by_peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def _pair() -> tuple[socket.socket, socket.socket]:
    """(accepted, dialled)"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialled = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    return accepted, dialled


def test_an_open_connection_is_not_closed() -> None:
    accepted, dialled = _pair()
    with accepted, dialled:
        dialled.sendall(b"unread")
        assert not is_closed_by_peer(accepted)


def test_a_closed_connection_is_closed_also_with_unread_bytes() -> None:
    accepted, dialled = _pair()
    with accepted:
        dialled.sendall(b"unread")
        dialled.close()
        accepted.settimeout(5)
        # The FIN has come once a read of more than was sent returns.
        assert accepted.recv(100, socket.MSG_PEEK | socket.MSG_WAITALL) == b"unread"
        assert is_closed_by_peer(accepted)


def test_a_reset_connection_is_closed() -> None:
    accepted, dialled = _pair()
    with accepted:
        accepted.sendall(b"never read: the close becomes a reset")
        assert dialled.recv(1, socket.MSG_PEEK)
        dialled.close()
        accepted.settimeout(5)
        with pytest.raises(ConnectionError):
            accepted.recv(1)
        assert is_closed_by_peer(accepted)
