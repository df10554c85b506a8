"""The table of errors knows every code that a producer can meet, and agrees with librdkafka's own opinion."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pipeline.producer import RULES, ErrorClass, Written, classify
from pipeline.producer.classification import NOT_FOR_PRODUCERS

# Codes of later versions of confluent-kafka are no failure of this test. (Codes of brokers, codes of the client.)
KNOWN_TO_2_16 = (range(-1, 134), range(-199, -136))


def names() -> set[str]:
    return {
        name
        for name in dir(KafkaError)
        if name.lstrip("_").replace("_", "").isupper() and isinstance(getattr(KafkaError, name), int)
    }


def error(name: str, *, fatal: bool = False) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), "reason", fatal=fatal)


def test_every_code_has_one_rule_or_a_reason_why_not() -> None:
    ruled = [rule.name for rule in RULES]
    excused = [name for excused in NOT_FOR_PRODUCERS.values() for name in excused.split()]
    assert len(ruled + excused) == len({*ruled, *excused})
    known = {name for name in names() if any(getattr(KafkaError, name) in codes for codes in KNOWN_TO_2_16)}
    assert known == {*ruled, *excused} & names()
    assert all(rule.reason.endswith((".", ")")) for rule in RULES)


@pytest.mark.parametrize(
    ("name", "error_class", "written"),
    [
        ("_MSG_TIMED_OUT", ErrorClass.TRANSIENT, Written.MAYBE),
        ("_ALL_BROKERS_DOWN", ErrorClass.TRANSIENT, Written.MAYBE),
        ("_QUEUE_FULL", ErrorClass.TRANSIENT, Written.NO),
        ("_PURGE_QUEUE", ErrorClass.TRANSIENT, Written.NO),
        ("_PURGE_INFLIGHT", ErrorClass.TRANSIENT, Written.MAYBE),
        ("NOT_ENOUGH_REPLICAS", ErrorClass.TRANSIENT, Written.NO),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", ErrorClass.TRANSIENT, Written.MAYBE),
        ("THROTTLING_QUOTA_EXCEEDED", ErrorClass.TRANSIENT, Written.NO),
        ("DUPLICATE_SEQUENCE_NUMBER", ErrorClass.TRANSIENT, Written.YES),
        ("MSG_SIZE_TOO_LARGE", ErrorClass.RECORD, Written.NO),
        ("INVALID_TIMESTAMP", ErrorClass.RECORD, Written.NO),
        ("POLICY_VIOLATION", ErrorClass.RECORD, Written.NO),
        ("_UNKNOWN_PARTITION", ErrorClass.RECORD, Written.NO),
        ("TOPIC_AUTHORIZATION_FAILED", ErrorClass.FATAL, Written.NO),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", ErrorClass.FATAL, Written.MAYBE),
        ("PRODUCER_FENCED", ErrorClass.FATAL, Written.NO),
        ("_FENCED", ErrorClass.FATAL, Written.MAYBE),
    ],
)
def test_well_known_codes(name: str, error_class: ErrorClass, written: Written) -> None:
    rule = classify(error(name))
    assert (rule.name, rule.error_class, rule.written) == (name, error_class, written)


def test_what_librdkafka_calls_fatal_is_fatal_whatever_anybody_says() -> None:
    classes = {KafkaError._MSG_TIMED_OUT: ErrorClass.RECORD}
    rule = classify(error("_MSG_TIMED_OUT", fatal=True), classes)
    assert (rule.error_class, rule.written) == (ErrorClass.FATAL, Written.MAYBE)


def test_the_caller_can_think_otherwise_of_a_code() -> None:
    classes = {KafkaError.TOPIC_AUTHORIZATION_FAILED: ErrorClass.RECORD}
    assert classify(error("TOPIC_AUTHORIZATION_FAILED"), classes).error_class is ErrorClass.RECORD


def test_an_unknown_code_belongs_to_its_record_and_may_be_written() -> None:
    rule = classify(KafkaError(4711, "from the future"))
    assert (rule.error_class, rule.written) == (ErrorClass.RECORD, Written.MAYBE)
