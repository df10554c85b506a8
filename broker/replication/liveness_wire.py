"""Pings between `raft.liveness` and the wire."""

from __future__ import annotations

from uuid import UUID

from protocol import peer
from raft.liveness_types import Challenge, Led, Ping
from storage.log_types import GroupKey


def to_wire(ping: Ping) -> peer.Ping:
    return peer.Ping(
        number=ping.number,
        boot_id=_boot(ping.boot_id),
        list_version=ping.list_version,
        base_version=ping.base_version,
        led=[
            peer.Led(
                topic_id=_key(led.group).topic_id,
                partition=_key(led.group).partition,
                term=led.term,
                configuration_index=led.configuration_index,
                established=led.established,
            )
            for led in ping.led
        ],
        dropped=[peer.GroupId(topic_id=_key(g).topic_id, partition=_key(g).partition) for g in ping.dropped],
        echo_number=ping.echo_number,
        echo_boot_id=_boot(ping.echo_boot_id),
        applied_version=ping.applied_version,
        reply_at_once=ping.reply_at_once,
        challenged=[
            peer.Challenge(topic_id=_key(group).topic_id, partition=_key(group).partition, term=term)
            for group, term in ping.challenged
        ],
    )


def from_wire(message: peer.Ping) -> Ping:
    return Ping(
        message.number,
        message.boot_id.bytes,
        message.list_version,
        message.base_version,
        tuple(
            Led(GroupKey(led.topic_id, led.partition), led.term, led.configuration_index, led.established)
            for led in message.led
        ),
        tuple(GroupKey(group.topic_id, group.partition) for group in message.dropped),
        message.echo_number,
        message.echo_boot_id.bytes,
        message.applied_version,
        tuple(Challenge(GroupKey(c.topic_id, c.partition), c.term) for c in message.challenged),
        message.reply_at_once,
    )


def _boot(boot_id: object) -> UUID:
    """Of a node that has not said anything yet: none."""
    assert boot_id is None or isinstance(boot_id, bytes)
    return UUID(bytes=boot_id or bytes(16))


def _key(group: object) -> GroupKey:
    assert isinstance(group, GroupKey)
    return group
