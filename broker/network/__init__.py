"""Connections of clients and of peers, and the one send per iteration of the event loop."""
