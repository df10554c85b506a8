"""Connections of clients and of peers."""
