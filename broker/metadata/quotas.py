"""Client quotas: for whom there can be one, what it can limit, and which of them a question means (KIP-546).

Codes are those of Apache Kafka 4.3. Every check raises KafkaError. How a limit is kept to stands in
broker.serving.quotas.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from broker.metadata.records import Entity, QuotaRecord
from protocol.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

#: What can be limited: the largest value, where it has to be a whole number.
_OF_CLIENTS = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_OF_ADDRESSES = {CONNECTION_CREATION_RATE: 2**31 - 1}


#: No client can say a longer client id, nor older versions of an answer a longer name.
MAX_NAME_BYTES = 32767


class Match(IntEnum):
    """Numbers of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """What a request wants for one entity: (key, limit), where None removes the limit."""

    entity: Sequence[tuple[str, str | None]]
    limits: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """One component of a question."""

    entity_type: str
    match: int
    name: str | None


def altered(current: Mapping[Entity, Mapping[str, float]], wanted: QuotaAlteration) -> QuotaRecord:
    """All limits that result for the entity; perhaps none."""
    entity = _checked_entity(wanted.entity)
    limits = dict(current.get(entity, {}))
    if len({key for key, _ in wanted.limits}) != len(wanted.limits):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a limit is named twice")
    for key, value in wanted.limits:
        if value is None:
            limits.pop(key, None)
        else:
            _check_limit(entity, key, value)
            limits[key] = value
    return QuotaRecord(entity, limits)


def _checked_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """As it is kept: sorted by type, each type once. Of a type that is named twice the last counts, as in Kafka."""
    entity = tuple(sorted(dict(parts).items()))
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota needs an entity")
    for entity_type, name in entity:
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no quotas of {entity_type!r}")
        if name is not None and len(name.encode()) > MAX_NAME_BYTES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a name has at most {MAX_NAME_BYTES} bytes")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of a {entity_type} cannot be empty")
    address = dict(entity).get(IP)
    if IP in dict(entity) and len(entity) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address stands alone: not with a user or client id")
    if address is not None:
        try:
            return ((IP, str(ipaddress.ip_address(address))),)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{address} is no IP address") from None
    return entity


def _check_limit(entity: Entity, key: str, value: float) -> None:
    known: Mapping[str, int | None] = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    problem: str | None = None
    if key not in known:
        problem = f"{key} cannot be limited for this entity"
    elif not value > 0:
        problem = f"{key} must be greater than 0"
    elif (largest := known[key]) is not None and value > largest:
        problem = f"{key} can be at most {largest}"
    elif largest is not None and value != int(value):
        problem = f"{key} must be a whole number"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def matches(entity: Entity, filters: Sequence[QuotaFilter], *, strict: bool) -> bool:
    """Whether every component matches the entity; `strict`: and it has no other part. The filters are checked."""
    if strict and len(entity) != len(filters):
        return False
    names = dict(entity)
    return all(_matches(names, component) for component in filters)


def _matches(names: Mapping[str, str | None], component: QuotaFilter) -> bool:
    if component.entity_type not in names:
        return False
    return component.match == Match.ANY or names[component.entity_type] == component.name


def check_filters(filters: Sequence[QuotaFilter]) -> None:
    types = [component.entity_type for component in filters]
    for component in filters:
        if not component.entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
        if component.entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of {component.entity_type!r}"
            )
        if component.match not in tuple(Match):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match}")
        if (component.name is not None) != (component.match == Match.EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an exact match, and no other, names what it matches")
    if len(set(types)) != len(types):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is named twice")
    if IP in types and len(types) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address stands alone: not with a user or client id")
