"""The baseline, what the caller may change, and what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.producer import ReliableProducer, RetryPolicy, SettingsError
from pipeline.producer.settings import BASELINE, ProducerSettings, producer_settings

SERVERS = {"bootstrap.servers": "localhost:1"}


def settings(given: dict[str, Any] | None = None, retries: RetryPolicy | None = None) -> ProducerSettings:
    return producer_settings({**SERVERS, **(given or {})}, retries, None)


def test_the_baseline_is_what_keeps_records_safe() -> None:
    client = settings().client
    assert client["acks"] == "all"
    assert client["enable.idempotence"] is True
    assert client["partitioner"] == "murmur2_random"
    # librdkafka notices a second late that time is over.
    assert (settings().bound_ms, client["delivery.timeout.ms"]) == (120_000, 119_000)
    assert "max.block.ms" not in client


def test_librdkafka_accepts_every_setting_of_the_baseline() -> None:
    with ReliableProducer(SERVERS) as producer:
        assert producer.flush(30).undelivered == 0


def test_the_callers_settings_win_also_under_their_other_names() -> None:
    client = settings({"message.timeout.ms": 5_000, "compression.codec": "zstd", "linger.ms": "20"}).client
    assert client["delivery.timeout.ms"] == 4_000
    assert client["compression.type"] == "zstd"
    assert client["linger.ms"] == "20"
    assert "message.timeout.ms" not in client


def test_a_short_bound_shortens_the_requests_of_the_baseline() -> None:
    client = settings({"delivery.timeout.ms": 3_000}).client
    assert client["request.timeout.ms"] == client["socket.timeout.ms"] == 3_000


def test_retries_of_what_may_be_written_leave_time_for_themselves() -> None:
    given = {"delivery.timeout.ms": 20_000}
    assert settings(given, RetryPolicy(possibly_written=True)).client["delivery.timeout.ms"] == 5_000
    assert settings(given, RetryPolicy()).client["delivery.timeout.ms"] == 19_000


def test_the_producer_of_retries_sends_each_record_alone_and_keeps_what_the_caller_said() -> None:
    side = settings({"compression.type": "lz4", "security.protocol": "PLAINTEXT"}).side_client
    assert side["batch.num.messages"] == 1
    assert (side["compression.type"], side["security.protocol"]) == ("lz4", "PLAINTEXT")


def test_a_transactional_producer_is_bounded_by_its_transaction() -> None:
    client = settings({"transactional.id": "t", "transaction.timeout.ms": 30_000}).client
    assert client["delivery.timeout.ms"] <= 30_000
    assert "transactional.id" not in settings({"transactional.id": "t"}).side_client


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"acks": 1}, "acks=1 contradicts enable.idempotence=true .the default here"),
        ({"acks": "0", "enable.idempotence": True}, "acks=0 contradicts enable.idempotence=true:"),
        ({"request.required.acks": 1}, "acks=1 contradicts"),
        ({"max.in.flight": 6}, "max.in.flight.requests.per.connection=6 contradicts"),
        ({"retries": 0}, "retries=0 contradicts"),
        ({"delivery.timeout.ms": 0}, "delivery.timeout.ms must be above 0"),
        ({"delivery.timeout.ms": "soon"}, "delivery.timeout.ms must be a whole number, not 'soon'"),
        ({"delivery.timeout.ms": 1_000, "message.timeout.ms": 2_000}, "are the same setting"),
        ({"delivery.timeout.ms": 1_000, "linger.ms": 1_000}, "leaves nothing of delivery.timeout.ms"),
        ({"delivery.timeout.ms": 1_000, "socket.timeout.ms": 2_000}, "one request outlasts the bound"),
        ({"linger.ms": "x"}, "linger.ms must be a number, not 'x'"),
        ({"queue.buffering.max.messages": 0}, "a queue without bound"),
        ({"max.block.ms": -1}, "max.block.ms must not be negative"),
        ({"enable.idempotence": "maybe"}, "enable.idempotence must be true or false"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is missing"),
        ({"delivery.report.only.error": True}, "delivery.report.only.error cannot be set"),
        ({"on_delivery": print}, "give the callback to send"),
        (
            {"transactional.id": "t", "enable.idempotence": "false"},
            "transactional.id contradicts enable.idem",
        ),
        (
            {"transactional.id": "t", "delivery.timeout.ms": 90_000},
            "contradicts transaction.timeout.ms=60000",
        ),
    ],
)
def test_contradictions_have_a_message(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings(given)


def test_what_aborts_a_transaction_cannot_be_retried_or_buried() -> None:
    given = {**SERVERS, "transactional.id": "t"}
    with pytest.raises(SettingsError, match="contradicts a dead-letter topic"):
        producer_settings(given, None, "dead")
    with pytest.raises(SettingsError, match="contradicts retries"):
        producer_settings(given, RetryPolicy(), None)


def test_an_attempt_cannot_outlast_the_bound() -> None:
    with pytest.raises(SettingsError, match="attempt_timeout_ms=2000 is longer than"):
        settings({"delivery.timeout.ms": 1_000}, RetryPolicy(attempt_timeout_ms=2_000))


def test_idempotence_can_be_given_up_in_so_many_words() -> None:
    assert settings({"enable.idempotence": False, "acks": 1}).client["acks"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [({"no.such.setting": 1}, "no.such.setting"), ({"partitioner": "by-mood"}, "by-mood")],
)
def test_what_librdkafka_does_not_know_is_an_error_of_the_settings(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=f"librdkafka does not accept the settings.*{message}"):
        ReliableProducer({**SERVERS, **given})


def test_the_baseline_is_one_name_a_setting() -> None:
    assert {"acks", "linger.ms", "delivery.timeout.ms"} <= BASELINE.keys()
    assert not {"message.timeout.ms", "queue.buffering.max.ms", "request.required.acks"} & BASELINE.keys()
