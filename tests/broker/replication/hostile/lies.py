"""Messages of a node that lies, of every kind: values near what is real and far from it, made from the declarations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID as Uuid

from broker.metadata.ids import METADATA_TOPIC_ID
from broker.network.peers import PeerIdentity
from broker.replication import wire
from broker.replication.replica import Replica
from protocol import peer
from protocol.codec import encoder
from protocol.controller.operations import OPERATIONS
from protocol.peer import PEER_KINDS, PeerMessage
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
)  # fmt: skip
from raft.plausibility import MAX_INDEX, MAX_TERM_JUMP
from raft.types import Configuration, ReplicaId
from storage.lineage import Row as LineageRow
from storage.producer_snapshot import encode_snapshot
from storage.producer_state import ProducerStates
from tests.broker.world import World

#: What nodes say after the handshake, and what is out of place then.
KINDS = [PEER_KINDS[kind] for kind in sorted(PEER_KINDS)]

#: As high as a replica can be put without being out of the others' reach for ever: it leaves room for more lies.
HIGH_TERM = MAX_TERM_JUMP - 1_000_000

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
#: Fields that name a log start: a leader or voter may raise it by right, and then records are gone by right, too.
_LOG_STARTS = ("log_start", "mtro", "mxro")
_INDEXES = (
    "start_index",
    "to_index",
    "commit_end",
    "match_end",
    "hint_index",
    "end_index",
    "index",
    "start_offset",
)
_TEXTS = (
    "",
    "x",
    "../outside",
    "two\nlines",
    "ü" * 100,
    "x" * 300,
    "__consumer_offsets",
    "__cluster_metadata",
)


class Liar:
    """Makes messages to one node, in the name of another one."""

    def __init__(self, world: World, target: int, sender: PeerIdentity, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._sender = sender
        self._rng = rng

    def message(self, kind: type[PeerMessage], *, may_decide: bool) -> PeerMessage:
        """Any message of this kind. Without `may_decide` it says nothing that only its sender can know, and by which
        records may go: that the log starts later, or that a follower has to begin anew."""
        replica = self._replica()
        message = self._struct(
            kind, replica, {} if replica is None else self._real(kind, replica, may_decide), may_decide
        )
        if isinstance(message, peer.InstallSnapshot) and not may_decide:
            committed = 0 if replica is None else replica.offset_of(replica.group.commit_end)
            message.log_start = self._rng.choice((committed, committed // 2, 0, -1, MAX_INDEX + 1))
        if isinstance(message, peer.Append) and replica is not None and not may_decide:
            self._spare_committed(message, replica)
        assert isinstance(message, PeerMessage)
        return message

    def _spare_committed(self, message: peer.Append, replica: Replica) -> None:
        """A replica that has just been started does not know what is committed, so a new leader may cut that off."""
        ends = [
            other.group.commit_end
            for node in self._world.nodes.values()
            if hasattr(node, "replicas") and (other := node.replicas.by_key.get(replica.key)) is not None
        ]
        if message.start_index < max(ends) and replica.group.commit_end < max(ends):
            message.rows, message.records, message.to_index = [], None, message.start_index

    def _replica(self) -> Replica | None:
        node = self._world.nodes.get(self._target)
        replicas = (
            [] if node is None or not hasattr(node, "replicas") else list(node.replicas.by_key.values())
        )
        return self._rng.choice(replicas) if replicas and self._rng.random() < 0.95 else None

    def _text(self, name: str, may_decide: bool) -> str:
        """An empty node cannot know whether it joins the right cluster."""
        if name == "cluster_id" and not may_decide:
            return self._rng.choice((self._sender.cluster_id or "", "", "two\nlines", "x" * 300))
        return self._rng.choice(_TEXTS)

    def _struct(
        self, cls: type[Message], replica: Replica | None, real: dict[str, Any], may_decide: bool
    ) -> Message:
        """Some fields are what they would be, some near it, some anything."""
        share = self._rng.choice((0.0, 0.1, 0.3, 1.0))
        values = {}
        for each in cls.__schema__.fields:
            if each.name in real and self._rng.random() >= share:
                values[each.name] = real[each.name]
            else:
                values[each.name] = self._field(each, replica, may_decide)
        return cls(**values)

    def _real(self, kind: type[PeerMessage], replica: Replica, may_decide: bool) -> dict[str, Any]:
        """What the sender would say of this group."""
        group, log = replica.group, replica.log
        end, offset = group.end_index, log.end_offset
        incarnation = next(
            (x.incarnation for x in group.configuration.members if x.node_id == self._sender.node_id), 0
        )
        common = {
            "topic_id": replica.key.topic_id,
            "partition": replica.partition,
            "incarnation": incarnation,
            "follower_incarnation": group.self_id.incarnation,
            "term": group.term,
            "log_start": log.start_offset,
            "commit_end": group.commit_end,
            "start_index": end,
            "to_index": end,
            "prev_term": group.last_term,
            "start_offset": offset,
            "match_end": end,
            "end_index": end,
            "last_term": group.last_term,
            "rows": [],
            "records": None,
            "boot_id": self._sender.boot_id,
            "cluster_id": self._sender.cluster_id,
            "node_id": self._sender.node_id,
            "directory_id": self._sender.directory_id,
        }
        if kind is peer.Append and self._rng.random() < 0.7:
            common |= self._range(replica, may_decide)
        if kind in (peer.VoteRequest, peer.VoteReply):
            common["term"] = group.term + 1
        if kind is peer.InstallSnapshot:
            common["rows"] = [wire.row_to_wire(row) for row in log.lineage.rows]
            common["producer_snapshot"] = encode_snapshot(ProducerStates())
        return common

    def _range(self, replica: Replica, may_decide: bool) -> dict[str, Any]:
        """A range that goes on with this log, or with an earlier end of it: records, or a row of a new term. Without
        `may_decide` there are rows only."""
        group, log, rng = replica.group, replica.log, self._rng
        start = rng.choice((group.end_index, group.commit_end, rng.randint(0, group.end_index)))
        offset = log.lineage.offset_of_index(start)
        prev_term = group.term_before(start)
        found: dict[str, Any] = {
            "start_index": start, "start_offset": offset, "prev_term": prev_term, "commit_end": start,
        }  # fmt: skip
        if may_decide and rng.random() < 0.5 and prev_term >= 0:
            batch, term = self._batch(offset, prev_term), rng.choice((group.term, group.term + 1))
            return found | {"records": batch, "to_index": start + batch[26] + 1, "term": term}
        # Not a term that a true leader has or is about to have: two rows of one index and term pass for the same. If
        # they name other members, the replicas can never agree on the next change.
        term = group.term + rng.randint(500, 1000)
        payload, kind = b"", 1
        if rng.random() < 0.4:
            payload, kind = wire.encode_configuration(self._configuration(replica), None), 0
        row = peer.AppendRow(index=start, term=term, offset=offset, kind=kind, payload=payload)
        return found | {"rows": [row], "to_index": start + 1, "term": term}

    def _batch(self, offset: int, term: int) -> bytes:
        """Of one record to three, or of bytes that are none, under a right checksum."""
        count = self._rng.randint(1, 3)
        batch = bytearray(build_batch([NewRecord(b"k", b"lie", 1)] * count))
        batch[0:8] = offset.to_bytes(8, "big")
        batch[12:16] = term.to_bytes(4, "big")
        return bytes(batch)

    def _configuration(self, replica: Replica) -> Configuration:
        voters, learners = replica.group.configuration
        stranger = ReplicaId(self._rng.choice((1, 2, 3, 9)), bytes(16), self._rng.choice((0, 1, 7)))
        return self._rng.choice(
            (
                Configuration(voters, learners),
                Configuration(voters[:-1], learners),
                Configuration((*voters, stranger), learners),
                Configuration(voters, (*learners, stranger)),
                Configuration((), ()),
                Configuration((stranger,), ()),
                Configuration(voters * 2, learners),
            )
        )

    # -- values --------------------------------------------------------------------------------------------

    def _field(self, declared: Field, replica: Replica | None, may_decide: bool) -> Any:
        if declared.nullable.includes(0) and self._rng.random() < 0.2:
            return None
        if not isinstance(declared.type, Array):
            return self._value(declared.type, declared.name, replica, may_decide)
        items = [
            self._value(declared.type.element, declared.name, replica, may_decide)
            for _ in range(self._rng.choice((0, 1, 1, 2, 5)))
        ]
        return items * self._rng.choice((1, 1, 1, 2))

    def _value(self, kind: Any, name: str, replica: Replica | None, may_decide: bool) -> Any:
        rng = self._rng
        if isinstance(kind, type):
            if kind is peer.AppendRow and replica is not None and rng.random() < 0.7:
                return wire.row_to_wire(rng.choice(replica.log.lineage.rows or [_NO_ROW]))
            real = {} if replica is None else self._real(peer.Ping, replica, may_decide)
            return self._struct(kind, replica, real, may_decide)
        if kind in _BITS:
            return self._number(_BITS[kind], name, replica, may_decide)
        choices: dict[Any, Callable[[], Any]] = {
            BOOLEAN: lambda: rng.random() < 0.5,
            UINT16: lambda: rng.choice((0, 1, 9092, 65535)),
            FLOAT64: lambda: rng.choice((0.0, 1.0, -1.0, float("inf"), float("nan"), 1e308)),
            UUID: self._uuid,
            STRING: lambda: self._text(name, may_decide),
            BYTES: lambda: self._bytes(name, replica),
            RECORDS: lambda: self._records(replica, may_decide),
        }
        return choices[kind]()

    def _number(self, bits: int, name: str, replica: Replica | None, may_decide: bool) -> int:
        half = 1 << (bits - 1)
        extremes = [0, 1, -1, -2, -half, half - 1]
        if name in _LOG_STARTS and not may_decide:
            end = 0 if replica is None else replica.log.end_offset
            return self._rng.choice([x for x in extremes if x != 1] + [end + 1, end + 1000, MAX_INDEX + 1])
        near: list[int] = [2, 3, 1000]
        if replica is not None:
            group = replica.group
            if "term" in name:
                jump = max(group.term, HIGH_TERM) if may_decide else group.term + 1000
                near = [group.term - 1, group.term, group.term + 1, jump, group.term + MAX_TERM_JUMP + 1]
            elif name in _INDEXES or name in _LOG_STARTS:
                near = [
                    group.end_index, group.end_index + 1, group.commit_end, group.commit_end - 1,
                    replica.log.end_offset, group.end_index // 2, MAX_INDEX, MAX_INDEX + 1,
                ]  # fmt: skip
        number = self._rng.choice(extremes + near * 2)
        return max(-half, min(number, half - 1))

    def _uuid(self) -> Uuid:
        node = self._world.nodes.get(self._target)
        known = [] if node is None or not hasattr(node, "metadata") else list(node.metadata.image.topics)
        return self._rng.choice(
            [METADATA_TOPIC_ID, Uuid(int=0), Uuid(int=2**128 - 1), self._sender.directory_id, *known]
        )

    def _bytes(self, name: str, replica: Replica | None) -> bytes:
        rng = self._rng
        choices = [b"", b"\0" * 20, rng.randbytes(rng.randint(0, 100))]
        if name == "payload" and replica is not None:
            payload = wire.encode_configuration(self._configuration(replica), None)
            choices += [payload, payload + b"\0", payload[:-1]]
        if name == "producer_snapshot":
            whole = encode_snapshot(ProducerStates())
            choices += [whole, whole + b"\0", whole[:-1]]
        if name == "body":
            choices.append(self._request())
        return rng.choice(choices)

    def _request(self) -> bytes:
        """The body of a request to the controller, or of an answer."""
        classes: Sequence[type[Message]] = self._rng.choice(sorted(OPERATIONS.items()))[1]
        body = self._struct(self._rng.choice(classes), None, {}, may_decide=False)
        return encoder(type(body), 0)(body)

    def _records(self, replica: Replica | None, may_decide: bool) -> bytes:
        rng = self._rng
        offset, term = (
            (0, 0) if replica is None else (replica.log.end_offset, max(replica.group.last_term, 0))
        )
        batch = self._batch(offset, term)
        flipped = bytearray(batch)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        whole = (batch, batch + batch) if may_decide else ()
        choices: tuple[bytes, ...] = (b"", batch[:-1], bytes(flipped), rng.randbytes(70), *whole)
        return rng.choice(choices)


_NO_ROW = LineageRow(index=0, term=0, offset=0, kind=0, payload=b"")
