"""Which error means what: a table of the error codes that a producer can meet.

The sources are librdkafka 2.16 (what it retries, what it gives up, and whether the record may be in the log by
then: `rd_kafka_err_action`, `rd_kafka_handle_Produce_error`) and Kafka's protocol guide. librdkafka itself
retries transient errors until `delivery.timeout.ms`, so most of those here are met only as the reason behind a
`_MSG_TIMED_OUT`, as events of a connection, or if the setting `retries` was lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from confluent_kafka import KafkaError


class ErrorClass(StrEnum):
    TRANSIENT = "transient"
    """The same record may be taken later, unchanged."""
    RECORD = "record"
    """This record will not be taken, now or later; others may be."""
    FATAL = "fatal"
    """This producer should send nothing more until its cause is mended."""


class Written(StrEnum):
    NO = "no"
    """Certainly not in the log: to send it again can reorder, but not duplicate."""
    MAYBE = "maybe"
    """No acknowledgement came, so it may be in the log: to send it again can duplicate."""
    YES = "yes"
    """It is in the log already."""

    @property
    def description(self) -> str:
        return {"no": "not written", "maybe": "possibly written", "yes": "already written"}[self.value]


@dataclass(frozen=True, slots=True)
class ErrorRule:
    name: str
    error_class: ErrorClass
    written: Written
    reason: str
    """Why it is in its class."""
    is_of_batch: bool = False
    """A broker refuses a whole batch with it, and may mean another record of the batch. A record that is sent again
    alone is judged alone."""


def _rules(
    error_class: ErrorClass, written: Written, reasons: Mapping[str, str], *, is_of_batch: bool = False
) -> Iterable[ErrorRule]:
    return [ErrorRule(name, error_class, written, reason, is_of_batch) for name, reason in reasons.items()]


_TRANSIENT, _RECORD, _FATAL = ErrorClass.TRANSIENT, ErrorClass.RECORD, ErrorClass.FATAL
_NO, _MAYBE, _YES = Written.NO, Written.MAYBE, Written.YES

# Each name is a constant of confluent_kafka.KafkaError. A leading underscore marks errors of the client itself.
RULES: tuple[ErrorRule, ...] = (
    *_rules(
        _TRANSIENT,
        _NO,
        {
            "_RESOLVE": "A broker's name could not be resolved; nothing was sent.",
            "_QUEUE_FULL": "The client's queue has no room until older records are delivered.",
            "_ISR_INSUFF": "Too few replicas are in sync; they come back.",
            "_WAIT_COORD": "The transaction coordinator is not known yet.",
            "_IN_PROGRESS": "The same call is under way; its outcome comes with the first.",
            "_PREV_IN_PROGRESS": "An earlier call is under way; this one can follow it.",
            "_TIMED_OUT_QUEUE": "The request waited too long on the client and was not sent.",
            "_INTR": "The call was interrupted before it did anything.",
            "_RETRY": "Taken back from the queue because the producer's id changed; it is sent again.",
            "_PURGE_QUEUE": "The application gave it up before it was sent (`close`); nothing is wrong with it.",
            "_INVALID_DIFFERENT_RECORD": "Another record of its batch was refused, and the batch with it (KIP-467).",
            "_DESTROY_BROKER": "The broker left the cluster; another takes over its partitions.",
            "INVALID_MSG": "The batch was damaged on its way; the checksum told (CORRUPT_MESSAGE).",
            "LEADER_NOT_AVAILABLE": "An election is under way.",
            "NOT_LEADER_FOR_PARTITION": "The leader moved; the metadata is refreshed.",
            "BROKER_NOT_AVAILABLE": "The broker is starting or stopping.",
            "REPLICA_NOT_AVAILABLE": "The broker does not have the replica yet.",
            "COORDINATOR_LOAD_IN_PROGRESS": "The transaction coordinator reads its log.",
            "COORDINATOR_NOT_AVAILABLE": "The transaction coordinator has no leader yet.",
            "NOT_COORDINATOR": "The transaction coordinator moved.",
            "NOT_ENOUGH_REPLICAS": "Fewer replicas than min.insync.replicas are in sync; the leader wrote nothing.",
            "CONCURRENT_TRANSACTIONS": "The previous transaction is still being completed.",
            "OPERATION_NOT_ATTEMPTED": "Another partition of the same request failed; this one was not tried.",
            "KAFKA_STORAGE_ERROR": "The leader's disk failed; another replica takes over.",
            "LISTENER_NOT_FOUND": "The leader has no listener of this kind yet.",
            "FENCED_LEADER_EPOCH": "The client knows an older leader; the metadata is refreshed.",
            "UNKNOWN_LEADER_EPOCH": "The broker knows an older leader than the client; it catches up.",
            "THROTTLING_QUOTA_EXCEEDED": "A quota is used up for the moment.",
            "INCONSISTENT_TOPIC_ID": "The topic was deleted and created again; the metadata is refreshed.",
            "REBOOTSTRAP_REQUIRED": "The metadata is too old; the client begins again from its bootstrap servers.",
        },
    ),
    *_rules(
        _TRANSIENT,
        _MAYBE,
        {
            "_FAIL": "The connection failed.",
            "_TRANSPORT": "The connection was lost while an answer was due.",
            "_SSL": "The encrypted connection failed. A bad certificate shows as this until the bound.",
            "_MSG_TIMED_OUT": "No acknowledgement came by the bound, in spite of librdkafka's own retries.",
            "_TIMED_OUT": "No answer came in time.",
            "_ALL_BROKERS_DOWN": "No broker can be reached; connections are tried again.",
            "_PURGE_INFLIGHT": "The application gave the record up (`close`) after it was sent.",
            "UNKNOWN": "The broker met an error that it has no code for (UNKNOWN_SERVER_ERROR).",
            "REQUEST_TIMED_OUT": "The replicas did not confirm in time; the leader may have written the batch.",
            "NETWORK_EXCEPTION": "The broker lost a connection before its answer.",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "The leader wrote the batch, and too few replicas followed.",
            "TRANSACTION_ABORTABLE": "The transaction has to be aborted, and can then be tried again (KIP-890).",
        },
    ),
    *_rules(
        _TRANSIENT,
        _YES,
        {
            "DUPLICATE_SEQUENCE_NUMBER": "A retry of a batch that is in the log. With idempotence it is a success."
        },
    ),
    *_rules(
        _RECORD,
        _NO,
        {
            "_UNKNOWN_TOPIC": "There is no such topic, and it did not appear within topic.metadata.propagation.max.ms.",
            "_UNKNOWN_PARTITION": "The topic has no such partition.",
            "_INVALID_ARG": "An argument of the record is not allowed.",
            "_CONFLICT": "Two arguments of the record contradict each other.",
            "_STATE": "No transaction is open, or it has to be aborted first.",
            "_KEY_SERIALIZATION": "The key could not be turned into bytes.",
            "_VALUE_SERIALIZATION": "The value could not be turned into bytes.",
            "UNKNOWN_TOPIC_OR_PART": "There is no such topic or partition.",
            "UNKNOWN_TOPIC_ID": "The topic was deleted.",
            "TOPIC_EXCEPTION": "The name of the topic is not allowed, or the topic is internal.",
        },
    ),
    *_rules(
        _RECORD,
        _NO,
        {
            "MSG_SIZE_TOO_LARGE": "Larger than the topic's max.message.bytes, or the client's message.max.bytes.",
            "RECORD_LIST_TOO_LARGE": "The batch is larger than a segment of the topic.",
            "INVALID_TIMESTAMP": "The timestamp is too far from the broker's clock for the topic.",
            "INVALID_RECORD": "The broker's validation refused it: a record without key on a compacted topic.",
            "POLICY_VIOLATION": "A policy of the cluster refused it.",
        },
        is_of_batch=True,
    ),
    *_rules(
        _FATAL,
        _NO,
        {
            "_CRIT_SYS_RESOURCE": "The process is out of memory, threads or descriptors.",
            "_FS": "A file that the client needs cannot be read.",
            "_AUTHENTICATION": "The cluster does not accept the credentials.",
            "_UNSUPPORTED_FEATURE": "The cluster lacks a feature that the settings ask for.",
            "_NOT_CONFIGURED": "The call needs a setting that is missing, for example transactional.id.",
            "INVALID_REQUIRED_ACKS": "The broker does not know this value of acks.",
            "TOPIC_AUTHORIZATION_FAILED": "Every record for the topic fails until its access rights are mended.",
            "CLUSTER_AUTHORIZATION_FAILED": "Idempotence or the cluster as a whole is not allowed to this client.",
            "UNSUPPORTED_SASL_MECHANISM": "Client and cluster have no way of authentication in common.",
            "ILLEGAL_SASL_STATE": "The authentication went wrong.",
            "SASL_AUTHENTICATION_FAILED": "The cluster does not accept the credentials.",
            "UNSUPPORTED_VERSION": "The cluster is too old or too new for this client.",
            "INVALID_REQUEST": "The broker does not accept what the client says: a bug on one of the two sides.",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT": "The topic's message format is too old for idempotence or headers.",
            "UNSUPPORTED_COMPRESSION_TYPE": "The broker or the topic does not allow this compression.type.",
            "INVALID_PRODUCER_EPOCH": "A newer producer has the same transactional.id.",
            "PRODUCER_FENCED": "A newer producer has the same transactional.id.",
            "INVALID_PRODUCER_ID_MAPPING": "The coordinator knows another producer for this transactional.id.",
            "INVALID_TRANSACTION_TIMEOUT": "transaction.timeout.ms is above the broker's transaction.max.timeout.ms.",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The transactional.id is not allowed to this client.",
        },
    ),
    *_rules(
        _FATAL,
        _MAYBE,
        {
            "_BAD_MSG": "The broker's answer cannot be read.",
            "_UNDERFLOW": "The broker's answer ends too early.",
            "_DESTROY": "The producer was taken down.",
            "_FATAL": "librdkafka met a fatal error before.",
            "_INCONSISTENT": "The client can no longer tell which records were written.",
            "_GAPLESS_GUARANTEE": "A record failed, and enable.gapless.guarantee forbids to go on.",
            "_FENCED": "A newer producer has the same transactional.id.",
            "OUT_OF_ORDER_SEQUENCE_NUMBER": "Client and broker disagree on what was written; going on is not safe.",
            "UNKNOWN_PRODUCER_ID": "The broker forgot the producer with records under way; going on could double.",
            "INVALID_TXN_STATE": "Coordinator and producer disagree on the state of the transaction.",
        },
    ),
)

# The other constants of KafkaError: why none of them can be the error of a record or of a transaction here.
NOT_FOR_PRODUCERS: Mapping[str, str] = {
    "no error": "NO_ERROR _NOOP",
    "consumers and their groups": """
        _PARTITION_EOF _UNKNOWN_GROUP _UNKNOWN_PROTOCOL _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS
        _NO_OFFSET _MAX_POLL_EXCEEDED _ASSIGNMENT_LOST _AUTO_OFFSET_RESET _LOG_TRUNCATION _KEY_DESERIALIZATION
        _VALUE_DESERIALIZATION _BAD_COMPRESSION OFFSET_OUT_OF_RANGE INVALID_MSG_SIZE OFFSET_METADATA_TOO_LARGE
        ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
        REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE GROUP_AUTHORIZATION_FAILED NON_EMPTY_GROUP GROUP_ID_NOT_FOUND
        FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED
        GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID GROUP_SUBSCRIBED_TO_TOPIC UNSTABLE_OFFSET_COMMIT FENCED_MEMBER_EPOCH
        UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH INVALID_REGULAR_EXPRESSION INVALID_RECORD_STATE
        SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH SHARE_SESSION_LIMIT_REACHED
        STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED""",
    "administration": """
        _UNKNOWN_BROKER _APPLICATION _NOENT _INVALID_TYPE _PARTIAL _NOT_IMPLEMENTED TOPIC_ALREADY_EXISTS
        INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER
        SECURITY_DISABLED LOG_DIR_NOT_FOUND REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED
        DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE TOPIC_DELETION_DISABLED
        PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS
        RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED
        PRINCIPAL_DESERIALIZATION_FAILURE MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID
        UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE""",
    "between brokers": """
        STALE_CTRL_EPOCH TRANSACTION_COORDINATOR_FENCED STALE_BROKER_EPOCH INCONSISTENT_VOTER_SET INVALID_REGISTRATION
        INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND""",
    "within librdkafka": "_NODE_UPDATE _OUTDATED _WAIT_CACHE _READ_ONLY",
}

RULE_OF_CODE: Mapping[int, ErrorRule] = {
    getattr(KafkaError, rule.name): rule for rule in RULES if hasattr(KafkaError, rule.name)
}


def classify(error: KafkaError, classes: Mapping[int, ErrorClass] | None = None) -> ErrorRule:
    """The rule for an error; `classes` are the caller's own opinions, by code.

    What librdkafka itself calls fatal is fatal, whatever the table or the caller say. A code that the table does not
    have belongs to the record: librdkafka gave it up and goes on, and nobody knows that a retry would help.
    """
    code = error.code()
    rule = RULE_OF_CODE.get(code)
    if rule is None:
        rule = ErrorRule(error.name(), _RECORD, _MAYBE, "A code that this table does not know.")
    if classes is not None and code in classes:
        rule = replace(rule, error_class=classes[code])
    if error.fatal() and rule.error_class is not _FATAL:
        rule = replace(rule, error_class=_FATAL, written=_MAYBE)
    return rule
