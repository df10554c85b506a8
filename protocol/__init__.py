"""Bytes to values and back: Kafka's wire protocol, record batches, and our own peer messages.

No I/O, no clock, no state beyond generated codecs. Read `README.md` first.
"""
