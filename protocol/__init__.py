"""Encoding and decoding: Kafka's wire protocol, record batches, and the messages between our own nodes.

There is no I/O and no clock here. Read `README.md` first.
"""
