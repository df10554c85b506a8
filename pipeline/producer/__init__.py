"""A Kafka producer that keeps records safe, says what became of each, and stops when it should. See README.md."""

from pipeline.producer.backoff import FullJitterBackoff
from pipeline.producer.breaker import BreakerSettings, BreakerState, CircuitBreaker
from pipeline.producer.classification import RULES, ErrorClass, ErrorRule, Written, classify
from pipeline.producer.counters import Counters
from pipeline.producer.delivery import DeadLetter, Failure, FlushReport, Headers, OnDelivery, Outcome, Record
from pipeline.producer.errors import (
    CallbackError,
    CircuitOpenError,
    ClosedError,
    DeliveryError,
    FatalProducerError,
    NotSentError,
    ProducerError,
    QueueFullError,
    SettingsError,
    ThrottledError,
    TransactionAbortedError,
    UndeliveredError,
)
from pipeline.producer.producer import ReliableProducer
from pipeline.producer.retries import RetryPolicy
from pipeline.producer.throttle import AdaptiveThrottle, ThrottleSettings

__all__ = [
    "ReliableProducer",
    "RetryPolicy",
    "FullJitterBackoff",
    "BreakerSettings",
    "BreakerState",
    "CircuitBreaker",
    "ThrottleSettings",
    "AdaptiveThrottle",
    "Record",
    "Headers",
    "OnDelivery",
    "Outcome",
    "Failure",
    "DeadLetter",
    "FlushReport",
    "Counters",
    "ErrorClass",
    "ErrorRule",
    "Written",
    "RULES",
    "classify",
    "ProducerError",
    "SettingsError",
    "NotSentError",
    "QueueFullError",
    "CircuitOpenError",
    "ThrottledError",
    "FatalProducerError",
    "ClosedError",
    "CallbackError",
    "DeliveryError",
    "UndeliveredError",
    "TransactionAbortedError",
]
