"""Who can have a quota, and which quotas a question means. The codes are what Apache Kafka 4.3.1 answers."""

from __future__ import annotations

import random

import pytest

from broker.metadata.controller import Controller
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.image import MetadataImage, QuotaChanged
from broker.metadata.quotas import Match, QuotaAlteration, QuotaFilter, altered, check_filters, matches
from broker.metadata.record_codec import decode, encode
from broker.metadata.records import Entity, QuotaRecord
from protocol.codec import at_once
from protocol.errors import ErrorCode, KafkaError

RATE, PERCENT, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
APP: Entity = (("client-id", "app"),)
ANY_CLIENT: Entity = (("client-id", None),)
USER: Entity = (("user", "u"),)
USER_APP: Entity = (("client-id", "app"), ("user", "u"))
ADDRESS: Entity = (("ip", "9.9.9.9"),)


def code_of(*parts: tuple[str, str | None], limits: list[tuple[str, float | None]]) -> ErrorCode:
    try:
        altered({}, QuotaAlteration(parts, limits))
    except KafkaError as refused:
        return refused.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("bogus", "x")],
        [("", None)],
        [("client-id", "")],
        [("ip", "1.2.3.4"), ("client-id", "a")],
        [("ip", "no.host.invalid")],
    ],
)
def test_who_cannot_have_a_quota(parts: list[tuple[str, str | None]]) -> None:
    assert code_of(*parts, limits=[(RATE, 1.0)]) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "parts",
    [
        [("client-id", "x")],
        [("client-id", None)],
        [("user", None), ("client-id", "x")],
        [("client-id", "a"), ("client-id", "b")],
    ],
)
def test_who_can_have_a_quota(parts: list[tuple[str, str | None]]) -> None:
    assert code_of(*parts, limits=[(RATE, 1.0)]) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "value", "is_valid"),
    [
        (RATE, 0.0, False),
        (RATE, -1.0, False),
        (RATE, 1.5, False),
        (RATE, 1e19, False),
        (RATE, float("inf"), False),
        (RATE, float("nan"), False),
        (RATE, 1e18, True),
        (PERCENT, 1.5, True),
        (PERCENT, -1.0, False),
        ("controller_mutation_rate", 0.5, True),
        ("bogus", 1.0, False),
        (CONNECTIONS, 5.0, False),
        (RATE, None, True),
        ("bogus", None, True),
    ],
)
def test_limits_of_clients(key: str, value: float | None, is_valid: bool) -> None:
    expected = ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST
    assert code_of(("client-id", "x"), limits=[(key, value)]) == expected


@pytest.mark.parametrize(
    ("key", "value", "is_valid"),
    [(CONNECTIONS, 5.0, True), (CONNECTIONS, 1.5, False), (CONNECTIONS, 3e9, False), (RATE, 5.0, False)],
)
def test_limits_of_addresses(key: str, value: float, is_valid: bool) -> None:
    for address in ("1.2.3.4", None):
        expected = ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST
        assert code_of(("ip", address), limits=[(key, value)]) == expected


def test_a_limit_that_is_named_twice_is_a_mistake() -> None:
    assert code_of(*APP, limits=[(RATE, 1.0), (RATE, 2.0)]) == ErrorCode.INVALID_REQUEST


def test_limits_are_set_and_removed_one_by_one() -> None:
    current = {APP: {RATE: 5.0, PERCENT: 50.0}}
    assert altered(current, QuotaAlteration(APP, [(RATE, None), ("consumer_byte_rate", 7.0)])).limits == {
        PERCENT: 50.0,
        "consumer_byte_rate": 7.0,
    }
    assert altered(current, QuotaAlteration(APP, [(RATE, None), (PERCENT, None)])).limits == {}


def test_an_entity_is_the_same_however_it_is_spelt() -> None:
    spelt = QuotaAlteration([("user", "u"), ("client-id", "app")], [(RATE, 1.0)])
    assert altered({}, spelt).entity == USER_APP
    assert altered({}, QuotaAlteration([("ip", "::0001")], [(CONNECTIONS, 1.0)])).entity == (("ip", "::1"),)


ALL: dict[Entity, dict[str, float]] = {
    entity: {RATE: 1.0} for entity in (APP, ANY_CLIENT, USER, USER_APP, ADDRESS)
}
CLIENT_EXACT = QuotaFilter("client-id", Match.EXACT, "app")


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, list(ALL)),
        ([], True, []),
        ([CLIENT_EXACT], False, [APP, USER_APP]),
        ([CLIENT_EXACT], True, [APP]),
        ([QuotaFilter("client-id", Match.DEFAULT, None)], False, [ANY_CLIENT]),
        ([QuotaFilter("client-id", Match.ANY, None)], True, [APP, ANY_CLIENT]),
        ([QuotaFilter("user", Match.ANY, None), CLIENT_EXACT], True, [USER_APP]),
        ([QuotaFilter("ip", Match.ANY, None)], False, [ADDRESS]),
    ],
)
def test_which_quotas_a_question_means(filters: list[QuotaFilter], strict: bool, found: list[Entity]) -> None:
    check_filters(filters)
    assert [entity for entity in ALL if matches(entity, filters, strict=strict)] == found


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([QuotaFilter("bogus", Match.ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([QuotaFilter("", Match.ANY, None)], ErrorCode.INVALID_REQUEST),
        ([QuotaFilter("user", Match.EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([QuotaFilter("user", Match.DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([QuotaFilter("user", 7, None)], ErrorCode.INVALID_REQUEST),
        (
            [QuotaFilter("user", Match.ANY, None), QuotaFilter("user", Match.DEFAULT, None)],
            ErrorCode.INVALID_REQUEST,
        ),
        (
            [QuotaFilter("user", Match.ANY, None), QuotaFilter("ip", Match.ANY, None)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_questions_that_mean_nothing(filters: list[QuotaFilter], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        check_filters(filters)
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["a,b=c/d %", "ü\n", "default", None])
def test_a_record_keeps_every_name(name: str | None) -> None:
    record = QuotaRecord((("client-id", name), ("user", None)), {RATE: 1e9})
    assert decode(*encode(record)) == record


def controller(max_quotas: int = 10) -> tuple[Controller, MetadataImage]:
    image = MetadataImage()
    config = ControllerConfig(max_quotas=max_quotas)
    return Controller(
        image,
        config,
        random.Random(1),
        is_alive=lambda broker: True,
        resources=None,  # type: ignore[arg-type]
    ), image


def test_a_decision_writes_what_changes_and_answers_one_by_one() -> None:
    decider, image = controller(max_quotas=2)
    wanted = [
        QuotaAlteration(APP, [(RATE, 5.0)]),
        QuotaAlteration([], []),
        QuotaAlteration(APP, [(RATE, 6.0)]),
        QuotaAlteration(USER, [(RATE, None)]),
        QuotaAlteration(ADDRESS, [(CONNECTIONS, 1.0)]),
    ]
    assert not at_once(decider.settings.alter_quotas(wanted, validate_only=True)).records
    decision = at_once(decider.settings.alter_quotas(wanted))
    codes = [None if x is None else x.code for x in decision.response]
    invalid = ErrorCode.INVALID_REQUEST
    assert codes == [None, invalid, invalid, None, ErrorCode.POLICY_VIOLATION]
    changes = [image.replay(*record, offset, 1) for offset, record in enumerate(decision.records)]
    assert changes == [QuotaChanged(APP, {RATE: 5.0})]
    removal = at_once(decider.settings.alter_quotas([QuotaAlteration(APP, [(RATE, None)])]))
    assert [image.replay(*record, 1, 1) for record in removal.records] == [QuotaChanged(APP, {})]
    assert not image.quotas
