"""The producer against a real node: outcomes, dead letters, a full queue, callbacks, transactions."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

import pipeline.producer
from pipeline.producer import (
    AdaptiveThrottle,
    CallbackError,
    ClosedError,
    DeliveryError,
    ErrorClass,
    Failure,
    FatalProducerError,
    FullJitterBackoff,
    NotSentError,
    Outcome,
    ProducerError,
    QueueFullError,
    ReliableProducer,
    RetryPolicy,
    ThrottledError,
    ThrottleSettings,
    TransactionAbortedError,
    UndeliveredError,
    Written,
)
from tests.pipeline.producer.conftest import TIMEOUT_S, Node

NOWHERE = {"bootstrap.servers": "localhost:1", "log_level": 0}


def producer(node: Node, settings: dict[str, Any] | None = None, **options: Any) -> ReliableProducer:
    return ReliableProducer({"bootstrap.servers": node.bootstrap, **(settings or {})}, **options)


def header(message: Message, name: str) -> str:
    values = [value for key, value in list(message.headers() or []) if key == name]
    assert len(values) == 1 and isinstance(values[0], bytes)
    return values[0].decode()


def test_the_example_of_the_readme_runs(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.create("orders")
    node.create("orders-dead")
    text = (Path(pipeline.producer.__file__).parent / "README.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    exec(compile(example.replace("localhost:19092", node.bootstrap), "README.md", "exec"), {})
    assert "at 0 0" in capsys.readouterr().out
    assert [message.key() for message in node.read("orders")] == [b"customer-7"] * 3


# -- outcomes ----------------------------------------------------------------------------------------------


def test_each_record_is_reported_once_and_is_where_the_report_says(node: Node, topic: str) -> None:
    node.create(topic, partitions=3)
    outcomes: list[Outcome] = []
    with producer(node) as sender:
        for number in range(1_000):
            sender.send(
                topic,
                str(number),
                f"k{number % 10}",
                on_delivery=outcomes.append,
                timestamp_ms=1_700_000_000_000 + number,
                headers=[("n", str(number))],
            )
    delivered = [outcome for outcome in outcomes if isinstance(outcome, Message)]
    assert len(outcomes) == len(delivered) == 1_000
    read = {(message.partition(), message.offset()): message for message in node.read(topic, 3)}
    assert len(read) == 1_000
    for outcome in delivered:
        found = read[outcome.partition(), outcome.offset()]
        assert (found.key(), found.value()) == (outcome.key(), outcome.value())
        assert header(found, "n") == (found.value() or b"").decode()
        assert found.timestamp()[1] == 1_700_000_000_000 + int(found.value() or b"")
    counters = sender.counters()
    assert (counters.delivered, counters.failed, counters.retries) == (1_000, 0, 0)


def test_metadata_can_be_had_before_the_first_record(node: Node, topic: str) -> None:
    node.create(topic, partitions=3)
    with producer(node) as sender:
        assert sender.partition_count(topic) == 3
        with pytest.raises(ProducerError, match="no metadata of nothing: Broker: Unknown topic"):
            sender.partition_count("nothing")
    with ReliableProducer(NOWHERE) as sender, pytest.raises(ProducerError, match="no metadata of t"):
        sender.partition_count("t", timeout_s=0.1)


def test_a_future_has_the_message_or_the_failure(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node) as sender:
        future = sender.submit(topic, "v", "k")
        assert future.result(TIMEOUT_S).offset() == 0
        refused = sender.submit(topic, "v", partition=7)
        error = refused.exception(TIMEOUT_S)
    assert isinstance(error, DeliveryError)
    assert (error.failure.name, error.failure.error_class) == ("_UNKNOWN_PARTITION", ErrorClass.RECORD)
    assert error.failure.written is Written.NO
    assert error.failure.record.partition == 7
    assert "not delivered" in str(error)


def test_flush_sends_what_lingers_and_leaves_nothing(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node, {"linger.ms": 60_000}) as sender:
        for number in range(10):
            sender.send(topic, str(number))
        assert sender.flush(TIMEOUT_S / 2).undelivered == 0
        assert sender.counters().delivered == 10


def send_in_vain(node: Node, topic: str) -> None:
    with producer(node) as sender:
        sender.send(topic, "v", partition=7)


def test_failures_that_nobody_was_told_of_are_told_by_flush_and_at_the_end_of_the_block(
    node: Node, topic: str
) -> None:
    node.create(topic)
    with producer(node) as sender:
        sender.send(topic, "v", partition=7)
        report = sender.flush(TIMEOUT_S)
        assert [failure.name for failure in report.failures] == ["_UNKNOWN_PARTITION"]
        assert sender.flush(TIMEOUT_S).failures == ()
    with pytest.raises(
        UndeliveredError, match="1 records were not delivered; the first: record for"
    ) as raised:
        send_in_vain(node, topic)
    assert [failure.record.value for failure in raised.value.report.failures] == [b"v"]
    # A block that ends with an exception ends with that one.
    with pytest.raises(KeyError), producer(node) as sender:
        sender.send(topic, "v", partition=7)
        raise KeyError


def test_a_mistyped_topic_is_an_error_of_the_record_and_creates_nothing(node: Node, topic: str) -> None:
    outcomes: list[Outcome] = []
    with producer(node, {"topic.metadata.propagation.max.ms": 0}) as sender:
        sender.send(topic, "v", on_delivery=outcomes.append)
    (failure,) = outcomes
    assert isinstance(failure, Failure)
    assert failure.error_class is ErrorClass.RECORD
    assert failure.name in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART")


def test_an_exception_of_a_callback_reaches_the_application_and_the_others_are_called(
    node: Node, topic: str
) -> None:
    node.create(topic)
    called: list[Outcome] = []

    def fail(outcome: Outcome) -> None:
        called.append(outcome)
        raise LookupError("mine")

    sender = producer(node)
    for _ in range(10):
        sender.send(topic, "v", on_delivery=fail)
    with pytest.raises(CallbackError, match="LookupError: mine") as raised:
        sender.flush(TIMEOUT_S)
    assert isinstance(raised.value.__cause__, LookupError)
    assert len(called) == 10
    sender.send(topic, "v", on_delivery=called.append)
    assert sender.close().undelivered == 0
    assert len(called) == 11


def test_an_exception_of_a_callback_reaches_the_next_send(node: Node, topic: str) -> None:
    node.create(topic)
    is_told = threading.Event()

    def fail(outcome: Outcome) -> None:
        is_told.set()
        raise LookupError("mine")

    with producer(node) as sender:
        sender.send(topic, "v", on_delivery=fail)
        assert is_told.wait(TIMEOUT_S)
        with pytest.raises(CallbackError):
            # The callback raises right after it has set the event.
            for _ in range(1_000_000):
                sender.send(topic, "v")


def test_what_waits_for_reports_is_refused_within_a_callback(node: Node, topic: str) -> None:
    node.create(topic)
    raised: list[str] = []

    def call(outcome: Outcome) -> None:
        for method in (sender.flush, sender.close):
            try:
                method()
            except ProducerError as error:
                raised.append(str(error))

    with producer(node) as sender:
        sender.send(topic, "v", on_delivery=call)
        sender.flush(TIMEOUT_S)
    assert len(raised) == 2 and all("a delivery callback cannot" in message for message in raised)


def test_a_closed_producer_takes_nothing(node: Node, topic: str) -> None:
    sender = producer(node)
    assert sender.close().undelivered == 0
    assert sender.close().undelivered == 0
    with pytest.raises(ClosedError):
        sender.send(topic, "v")


def test_many_threads_may_send(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node, {"queue.buffering.max.messages": 100}) as sender:

        def send() -> None:
            for _ in range(500):
                sender.send(topic, "v")

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sender.counters().delivered == 2_000
    assert len(node.read(topic)) == 2_000


# -- a full queue, close -------------------------------------------------------------------------------------


def test_a_full_queue_blocks_and_then_says_so() -> None:
    sender = ReliableProducer({**NOWHERE, "queue.buffering.max.messages": 5})
    for number in range(5):
        sender.send("t", str(number))
    with pytest.raises(QueueFullError, match=r"stayed full for 0.2 s.*queue.buffering.max.messages=5"):
        sender.send("t", "one too many", timeout_s=0.2)
    assert sender.counters().queue_full_waits == 1
    assert sender.flush(0).outstanding >= 5
    report = sender.close(0)
    assert sorted((failure.record.value or b"").decode() for failure in report.failures) == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]
    assert {failure.name for failure in report.failures} == {"_PURGE_QUEUE"}
    assert {failure.written for failure in report.failures} == {Written.NO}


def test_a_send_that_waits_goes_on_when_there_is_room(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node, {"queue.buffering.max.messages": 1, "linger.ms": 0}) as sender:
        for number in range(50):
            sender.send(topic, str(number), "k")
    assert [message.value() for message in node.read(topic)] == [str(n).encode() for n in range(50)]
    assert sender.counters().queue_full_waits > 0


def test_a_callback_does_not_wait_for_room_that_only_its_end_makes() -> None:
    raised: list[Exception] = []
    is_told = threading.Event()

    def send_again(outcome: Outcome) -> None:
        try:
            for _ in range(6):
                sender.send("t", "v")
        except QueueFullError as error:
            raised.append(error)
        is_told.set()

    sender = ReliableProducer({**NOWHERE, "queue.buffering.max.messages": 5, "delivery.timeout.ms": 1_000})
    sender.send("t", "v", on_delivery=send_again)
    assert is_told.wait(TIMEOUT_S)
    assert "a delivery callback cannot wait" in str(raised[0])
    sender.close(0)


def test_close_tells_the_callbacks_of_what_it_gives_up() -> None:
    outcomes: list[Outcome] = []
    sender = ReliableProducer(NOWHERE)
    sender.send("t", "v", on_delivery=outcomes.append, headers=[("h", "1")], timestamp_ms=7)
    report = sender.close(0)
    assert tuple(outcomes) == report.failures
    (failure,) = report.failures
    assert (failure.record.headers, failure.record.timestamp_ms) == ([("h", "1")], 7)


# -- dead letters ------------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_becomes_a_dead_letter_that_says_why(node: Node, topic: str) -> None:
    node.create(topic, max__message__bytes="2000")
    dead = node.create(f"{topic}-dead")
    outcomes: list[Outcome] = []
    with producer(node, dead_letter_topic=dead) as sender:
        sender.send(
            topic,
            b"x" * 5_000,
            "key",
            on_delivery=outcomes.append,
            timestamp_ms=1_700_000_000_123,
            headers=[("own", "1")],
        )
    (failure,) = outcomes
    assert isinstance(failure, Failure) and failure.dead_letter is not None
    (letter,) = node.read(dead)
    assert (letter.key(), letter.value()) == (b"key", b"x" * 5_000)
    assert letter.timestamp()[1] == 1_700_000_000_123
    assert (failure.dead_letter.topic, failure.dead_letter.offset) == (dead, letter.offset())
    expected = {
        "own": "1",
        "dead-letter.topic": topic,
        "dead-letter.partition": "0",
        "dead-letter.class": "record",
        "dead-letter.code": str(KafkaError.MSG_SIZE_TOO_LARGE),
        "dead-letter.error": "MSG_SIZE_TOO_LARGE",
        "dead-letter.written": "no",
        "dead-letter.attempts": "1",
    }
    assert {name: header(letter, name) for name in expected} == expected
    assert "too large" in header(letter, "dead-letter.reason")
    assert header(letter, "dead-letter.failed-at").endswith("+00:00")
    assert node.read(topic) == []
    counters = sender.counters()
    assert (counters.failed, counters.dead_letters, counters.dead_letters_failed) == (1, 1, 0)
    assert counters.errors_by_class[ErrorClass.RECORD] == 1
    assert counters.errors_by_code["MSG_SIZE_TOO_LARGE"] == 1


def test_a_record_that_the_client_itself_finds_too_large_becomes_one_as_well(node: Node, topic: str) -> None:
    node.create(topic)
    dead = node.create(f"{topic}-dead", max__message__bytes="10000000")
    with producer(node, {"message.max.bytes": 10_000}, dead_letter_topic=dead) as sender:
        future = sender.submit(topic, b"x" * 20_000)
        assert isinstance(future.exception(TIMEOUT_S), DeliveryError)
    assert [len(letter.value() or b"") for letter in node.read(dead)] == [20_000]


def test_a_dead_letter_topic_that_is_missing_shows_in_the_failure(node: Node, topic: str) -> None:
    node.create(topic, max__message__bytes="2000")
    settings = {"topic.metadata.propagation.max.ms": 0}
    with producer(node, settings, dead_letter_topic=f"{topic}-dead") as sender:
        error = sender.submit(topic, b"x" * 5_000).exception(TIMEOUT_S)
    assert isinstance(error, DeliveryError)
    assert error.failure.name == "MSG_SIZE_TOO_LARGE"
    assert error.failure.dead_letter is None
    assert "UNKNOWN_TOPIC" in str(error.failure.dead_letter_error)
    assert sender.counters().dead_letters_failed == 1


def test_a_transient_failure_is_no_dead_letter() -> None:
    settings = {**NOWHERE, "delivery.timeout.ms": 1_000}
    with ReliableProducer(settings, dead_letter_topic="dead") as sender:
        error = sender.submit("t", "v").exception(TIMEOUT_S)
    assert isinstance(error, DeliveryError)
    assert error.failure.error_class is ErrorClass.TRANSIENT
    assert error.failure.dead_letter is None and error.failure.dead_letter_error is None


# -- retries -----------------------------------------------------------------------------------------------


def test_records_that_share_a_batch_with_a_refused_one_are_delivered_alone(node: Node, topic: str) -> None:
    """A broker refuses a batch as a whole. Only the record that is at fault becomes a dead letter."""
    node.create(topic, max__message__bytes="2000")
    dead = node.create(f"{topic}-dead")
    with producer(node, {"linger.ms": 1_000}, dead_letter_topic=dead) as sender:
        futures = [sender.submit(topic, f"{n}".encode() * (5_000 if n == 5 else 1)) for n in range(10)]
        sender.flush(TIMEOUT_S)
        wait(futures, TIMEOUT_S)
    good = [str(n).encode() for n in range(10) if n != 5]
    assert [message.value() for message in node.read(topic)] == good
    assert [message.value() for message in node.read(dead)] == [b"5" * 5_000]
    assert header(node.read(dead)[0], "dead-letter.attempts") == "2"
    counters = sender.counters()
    assert (counters.delivered, counters.dead_letters, counters.retries) == (9, 1, 10)


def test_keyed_records_are_not_sent_again_unless_asked_as_that_could_reorder(node: Node, topic: str) -> None:
    node.create(topic, max__message__bytes="2000")
    dead = node.create(f"{topic}-dead")
    with producer(node, {"linger.ms": 1_000}, dead_letter_topic=dead) as sender:
        sender.send(topic, "small", "a")
        sender.send(topic, b"x" * 5_000, "b")
        sender.flush(TIMEOUT_S)
        assert sender.counters().retries == 0
    assert len(node.read(dead)) == 2
    policy = RetryPolicy(keyed=True)
    with producer(node, {"linger.ms": 1_000}, dead_letter_topic=dead, retries=policy) as sender:
        sender.send(topic, "small", "a")
        sender.send(topic, b"x" * 5_000, "b")
        sender.flush(TIMEOUT_S)
    assert [message.value() for message in node.read(topic)] == [b"small"]
    assert len(node.read(dead)) == 3


def test_retries_of_a_timeout_keep_within_the_bound() -> None:
    backoff = FullJitterBackoff(floor_s=0.05, base_s=0.1, cap_s=0.1)
    policy = RetryPolicy(max_attempts=1_000, possibly_written=True, attempt_timeout_ms=500, backoff=backoff)
    settings = {**NOWHERE, "delivery.timeout.ms": 6_000}
    with ReliableProducer(settings, retries=policy, breaker=None, rng=Random(1)) as sender:
        error = sender.submit("t", "v").exception(TIMEOUT_S)
    assert isinstance(error, DeliveryError)
    assert error.failure.attempts > 1
    # The bound, and something for a busy machine.
    assert error.failure.elapsed_ms < 6_000 + 2_000
    assert sender.counters().retries == error.failure.attempts - 1


# -- fatal errors ------------------------------------------------------------------------------------------


def test_an_error_that_the_caller_calls_fatal_stops_the_producer(node: Node, topic: str) -> None:
    node.create(topic, max__message__bytes="2000")
    classes = {KafkaError.MSG_SIZE_TOO_LARGE: ErrorClass.FATAL}
    with producer(node, error_classes=classes, dead_letter_topic=f"{topic}-dead") as sender:
        error = sender.submit(topic, b"x" * 5_000).exception(TIMEOUT_S)
        assert isinstance(error, DeliveryError)
        assert error.failure.error_class is ErrorClass.FATAL
        assert error.failure.dead_letter is None and error.failure.dead_letter_error is None
        with pytest.raises(FatalProducerError, match="MSG_SIZE_TOO_LARGE"):
            sender.send(topic, "small")
        assert "MSG_SIZE_TOO_LARGE" in str(sender.fatal_error)


def test_events_of_the_client_are_counted_and_passed_on() -> None:
    events: list[KafkaError] = []
    has_event = threading.Event()

    def note(error: KafkaError) -> None:
        events.append(error)
        has_event.set()

    sender = ReliableProducer({**NOWHERE, "error_cb": note})
    assert has_event.wait(TIMEOUT_S)
    sender.close(0)
    assert sender.counters().client_events.total() == len(events)


# -- throttle ----------------------------------------------------------------------------------------------


def test_the_throttle_drops_what_a_dead_cluster_would_not_take() -> None:
    sender = ReliableProducer(NOWHERE, throttle=ThrottleSettings(), rng=Random(1))
    with pytest.raises(ThrottledError):
        for _ in range(100):
            sender.send("t", "v")
    sender.close(0)


def test_the_throttle_lets_through_what_a_healthy_cluster_takes(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node, throttle=ThrottleSettings(), rng=Random(1)) as sender:
        sender.send(topic, "v")
        for _ in range(50):
            sender.flush(TIMEOUT_S)
            sender.send(topic, "v")
    assert sender.counters().delivered == 51


def test_a_retry_that_the_throttle_drops_waits_for_its_next_turn_before_it_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    class OnlyTheFirst(AdaptiveThrottle):
        def admit(self, now: float) -> bool:
            asked.append(now)
            return len(asked) == 1

    monkeypatch.setattr("pipeline.producer.producer.AdaptiveThrottle", OnlyTheFirst)
    sender = ReliableProducer(
        {**NOWHERE, "delivery.timeout.ms": 5_000},
        throttle=ThrottleSettings(),
        retries=RetryPolicy(
            100, possibly_written=True, attempt_timeout_ms=200, backoff=FullJitterBackoff(0.5, 0.5, 0.5)
        ),
    )
    sender.send("t", "v", on_delivery=lambda _: None)
    sender.close(TIMEOUT_S)
    # Each time is counted as a request: asked every 50 ms, it would drop all for longer than the cluster is ill.
    assert 1 < len(asked) <= 1 + 5 / 0.5


# -- transactions ------------------------------------------------------------------------------------------


def test_a_transaction_is_read_as_a_whole_or_not_at_all(node: Node, topic: str) -> None:
    node.create(topic)
    with producer(node, {"transactional.id": topic}) as sender:
        with sender.transaction():
            sender.send(topic, "committed")
        with pytest.raises(KeyError), sender.transaction():
            sender.send(topic, "aborted")
            raise KeyError
        with sender.transaction():
            sender.send(topic, "committed, too")
        with pytest.raises(NotSentError, match="within transaction"):
            sender.send(topic, "outside")
    assert [message.value() for message in node.read(topic)] == [b"committed", b"committed, too"]


def test_a_refused_record_aborts_its_transaction_which_can_be_tried_again(node: Node, topic: str) -> None:
    node.create(topic, max__message__bytes="2000")
    with producer(node, {"transactional.id": topic}) as sender:
        outcomes: list[Outcome] = []
        with pytest.raises(TransactionAbortedError, match="MSG_SIZE_TOO_LARGE"), sender.transaction():
            sender.send(topic, "small")
            sender.flush(TIMEOUT_S)
            sender.send(topic, b"x" * 5_000, on_delivery=outcomes.append)
        assert [getattr(outcome, "name", "") for outcome in outcomes] == ["MSG_SIZE_TOO_LARGE"]
        # librdkafka skips the refused record's sequence number, so the next transaction is aborted as well; on Apache
        # Kafka, too.
        for _ in range(5):
            try:
                with sender.transaction():
                    sender.send(topic, "again")
                break
            except TransactionAbortedError:
                continue
    assert [message.value() for message in node.read(topic)] == [b"again"]


def test_a_fenced_producer_is_dead_for_good(node: Node, topic: str) -> None:
    node.create(topic)
    settings = {"transactional.id": topic}
    old = producer(node, settings)
    with old.transaction():
        old.send(topic, "old")
    with producer(node, settings) as new, new.transaction():
        new.send(topic, "new")
    with pytest.raises(FatalProducerError, match="FENCED"), old.transaction():
        old.send(topic, "zombie")
    assert old.fatal_error is not None
    with pytest.raises(FatalProducerError, match="FENCED"):
        old.send(topic, "zombie")
    old.close(TIMEOUT_S)
    assert [message.value() for message in node.read(topic)] == [b"old", b"new"]


def test_a_producer_without_an_id_has_no_transactions(node: Node) -> None:
    with (
        producer(node) as sender,
        pytest.raises(ProducerError, match=r"needs the setting transactional\.id"),
        sender.transaction(),
    ):
        pass
