"""Connections: of clients, of peers, and the one send per turn."""
