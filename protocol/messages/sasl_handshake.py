"""SaslHandshake (17): a client names the mechanism by which it is going to prove who it is (KIP-43, KIP-152)."""

from __future__ import annotations

from protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
    """Those that the listener has."""
