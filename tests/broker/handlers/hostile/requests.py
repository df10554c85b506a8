"""Well-formed requests with odd values, made from the declarations, for every API that is served."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID as Uuid

from hypothesis import strategies as st

from broker.handlers import APIS
from broker.metadata.ids import METADATA_TOPIC_NAME
from broker.serving.api import Api
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NIL_UUID,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
)  # fmt: skip

TOPIC = "victim"
#: Replaced when the request is sent: by the id of TOPIC, and by a member id that the cluster gave out.
TOPIC_ID = Uuid(int=0x70)
MEMBER_ID = "<a member>"
#: Is replaced by as many bytes that are not UTF-8: a lone surrogate, and bytes that begin no character.
NOT_UTF8 = "<no utf8>"
_NOT_UTF8_BYTES = b"\xed\xa0\x80\xff\xc0\xc1\xfe\xf5\x80"
assert len(_NOT_UTF8_BYTES) == len(NOT_UTF8.encode())

#: The longest text in a version that is not flexible. Flexible versions allow longer ones.
LONGEST = 32767
#: A longer wait is well-formed, too, but makes the test slow.
LONGEST_WAIT_MS = 500

_TEXTS = (
    "", " ", ".", "..", "../../etc/passwd", "a/b", "\0", "\n", "%", "%2F", "=", ",", "ü", "\U0001f480", "\ufeff",
    "null", "-1", "x" * 249, "x" * 250, "ü" * 125, "x" * 1000, "x" * LONGEST, "ü" * (LONGEST // 2), NOT_UTF8,
    TOPIC, "__consumer_offsets", METADATA_TOPIC_NAME, "group", "consumer group", MEMBER_ID, "consumer", "range",
    "uniform", "user", "client-id", "ip", "1", "2", "127.0.0.1", "fe80::1%eth0", "(a*)*b", "v.*", "[", "\\",
)  # fmt: skip
_TEXTS_OF_FLEXIBLE = ("x" * (LONGEST + 1), "ü" * LONGEST, "x" * 200_000)
#: Field -> values with which a request passes its first check.
_LIKELY: dict[str, tuple[Any, ...]] = {
    "group_id": ("group", "consumer group"),
    "name": (TOPIC, "retention.ms", "group.consumer.session.timeout.ms"),
    "config_name": ("retention.ms", "cleanup.policy"),
    "resource_name": (TOPIC, "1", "group"),
    "value": ("1000", "compact"),
    "member_id": (MEMBER_ID, "", "chosen"),
    "protocol_type": ("consumer",),
    "entity_type": ("user", "client-id", "ip"),
    "key": ("producer_byte_rate", "request_percentage"),
    "session_timeout_ms": (10_000,),
    "rebalance_timeout_ms": (500,),
    "generation_id": (1, -1),
    "member_epoch": (0, 1, -1, -2),
    "partition_index": (0, 1),
    "topic_id": (TOPIC_ID,),
    "resource_type": (2, 4, 32),
    "topics": (TOPIC,),
    "num_partitions": (1, 3, -1),
    "replication_factor": (1, 3, -1),
    "isolation_level": (0, 1),
    "subscribed_topic_names": (TOPIC,),
    "subscribed_topic_regex": ("v.*",),
    "server_assignor": ("uniform", "range"),
    "group_instance_id": ("instance",),
    "instance_id": ("instance",),
    "rack_id": ("rack",),
    "generation_id_or_member_epoch": (-1, 1),
    "retention_time_ms": (-1, 2**63 - 1),
    "committed_metadata": ("", "x" * 1000),
    "current_leader_epoch": (-1,),
    "config_operation": (0, 1, 2),
}
#: Upper bounds of fields that rightly cost disk, memory or time: 10,000 partitions are not an attack.
_LARGEST = {"num_partitions": 3, "count": 4}
_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}


@dataclass(frozen=True, slots=True)
class HostileRequest:
    api: Api
    version: int
    client_id: str | None
    body: Message

    def __repr__(self) -> str:
        """Python code of the request; long texts are shortened."""
        text = f"{self.api.key.name} v{self.version} by {self.client_id!r}: {self.body!r}"
        return text if len(text) < 3000 else f"{text[:3000]}... ({len(text)} characters)"

    @property
    def is_answered(self) -> bool:
        """False for Produce with acks=0, and for requests that wait for other members of a group."""
        return getattr(self.body, "acks", 1) != 0

    def frame(self, number: int, topic_id: Uuid, member_id: str) -> bytes:
        """The encoded frame, without its length."""
        body = encode(_filled_in(self.body, topic_id, member_id), self.version)
        header = RequestHeader(self.api.key, self.version, number, self.client_id)
        return encode_request_header(header) + body.replace(NOT_UTF8.encode(), _NOT_UTF8_BYTES)


def any_request() -> st.SearchStrategy[HostileRequest]:
    @st.composite
    def build(draw: st.DrawFn) -> HostileRequest:
        return _request(lambda values: draw(st.sampled_from(values)), APIS)

    return build()


def random_request(rng: random.Random, apis: Sequence[Api] = APIS) -> HostileRequest:
    """As `any_request`, of one of these APIs, without Hypothesis: for millions of requests."""
    return _request(rng.choice, apis)


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    """A message of any class, with values as odd."""
    return _Drawer(rng.choice, version, _TEXTS).struct(cls)


def _request(one_of: Callable[[Sequence[Any]], Any], apis: Sequence[Api]) -> HostileRequest:
    api: Api = one_of(apis)
    version = one_of(range(api.min_version, api.max_version + 1))
    client_id = one_of(("app", None, "", "ü" * 1000, "x" * LONGEST))
    is_flexible = api.request.__schema__.flexible.includes(version)
    texts = _TEXTS + _TEXTS_OF_FLEXIBLE if is_flexible else _TEXTS
    return HostileRequest(api, version, client_id, _Drawer(one_of, version, texts).struct(api.request))


def every_request(rng: random.Random, text: str) -> Iterator[HostileRequest]:
    """A request of every version of every API. All of its texts are `text`, except those that have to pass a check."""
    for api in APIS:
        for version in range(api.min_version, api.max_version + 1):
            body = _Drawer(rng.choice, version, (text,)).struct(api.request)
            yield HostileRequest(api, version, "x" * LONGEST, body)


class _Drawer:
    """Draws the parts of one request."""

    def __init__(self, one_of: Callable[[Sequence[Any]], Any], version: int, texts: Sequence[str]) -> None:
        self._choose = one_of
        self._version = version
        self._texts = texts

    def struct(self, cls: type[Message]) -> Message:
        values = {}
        for each in cls.__schema__.fields:
            exists = each.versions.includes(self._version)
            values[each.name] = self._field(each) if exists else each.absent_value
        return cls(**values)

    def _field(self, declared: Field) -> Any:
        is_tagged_struct = declared.tag is not None and isinstance(declared.type, type)
        if (is_tagged_struct or declared.nullable.includes(self._version)) and self._one_of(*range(4)) == 0:
            return None
        if not isinstance(declared.type, Array):
            return self._value(declared.type, declared.name)
        # A member that joins a group of the consumer protocol owns no partitions.
        usual = 0 if declared.name == "topic_partitions" else 1
        size = self._one_of(usual, usual, usual, 0, 2)
        items = [self._value(declared.type.element, declared.name) for _ in range(size)]
        # Naming a thing twice finds mistakes in code that looks things up by name.
        return items * self._one_of(1, 1, 2)

    def _value(self, kind: Any, name: str) -> Any:
        if isinstance(kind, type):
            return self.struct(kind)
        if name in _LIKELY and self._one_of(*range(4)):
            likely = self._one_of(*_LIKELY[name])
            if isinstance(likely, str) == (kind is STRING) and isinstance(likely, Uuid) == (kind is UUID):
                return likely
        if kind in _BITS:
            return self._number(_BITS[kind], name)
        if kind == UINT16:
            return self._one_of(0, 1, 65535)
        if kind == FLOAT64:
            return self._one_of(1000.0, 0.0, -1.0, 0.5, 1e-300, 1e308, float("inf"), float("nan"))
        if kind == BOOLEAN:
            return self._one_of(False, True)
        if kind == UUID:
            return self._one_of(TOPIC_ID, NIL_UUID, Uuid(int=1), Uuid(int=2**128 - 1))
        if kind == STRING:
            return self._one_of(*self._texts)
        if kind == RECORDS:
            batch = bytes(build_batch([NewRecord(b"k", b"v", 1)]))
            return memoryview(self._one_of(batch, b"", b"r" * 100, batch * 2))
        return self._one_of(b"", b"\xff" * 10, b"\0" * 20, b"x" * 40_000)

    def _number(self, bits: int, name: str) -> int:
        half = 1 << (bits - 1)
        number: int = self._one_of(0, 1, 2, -1, -2, 7, 100, -half, half - 1)
        if "wait" in name or name == "timeout_ms":
            return min(number, LONGEST_WAIT_MS)
        return min(number, _LARGEST.get(name, number))

    def _one_of(self, *values: Any) -> Any:
        return self._choose(values)


def _filled_in(value: Any, topic_id: Uuid, member_id: str) -> Any:
    if isinstance(value, Message):
        filled = {name: _filled_in(getattr(value, name), topic_id, member_id) for name in value.__slots__}
        return type(value)(**filled)
    if isinstance(value, list):
        return [_filled_in(each, topic_id, member_id) for each in value]
    return {TOPIC_ID: topic_id, MEMBER_ID: member_id}.get(value, value) if _is_name(value) else value


def _is_name(value: object) -> bool:
    return isinstance(value, str | Uuid)
