"""Requests and answers of consumer groups (KIP-848) as values without wire versions, and the checks of a request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from broker.groups.assignors import Assignment
from broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Subscription,
)
from broker.metadata.ids import MAX_TOPIC_NAME_LENGTH
from protocol.errors import ErrorCode, KafkaError

MAX_TEXT_BYTES = 1_000
"""The longest group id, member id, instance id, client id, client address, rack id or regular expression. They are kept
in memory, compared in every heartbeat, and a decision about many members has to fit into one batch."""
MAX_TOPIC_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A field that is None, or a timeout of -1, has not changed since the member's last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that the member owns now."""

    @property
    def is_whole(self) -> bool:
        """The request names everything, as from a member that missed an answer. The answer names everything, too."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms >= 0 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """None: it has not changed."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    subscription: Subscription
    epoch: int
    assignment: Assignment
    target: Assignment


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[MemberDescription]


def check_request(request: HeartbeatRequest, assignors: Collection[str]) -> None:
    """The checks that Kafka makes before it looks for the group, in Kafka's order. Raises KafkaError."""
    if not request.member_id.strip():
        raise _invalid("the member id is empty")
    if not request.group_id.strip():
        raise _invalid("the group id is empty")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("the instance id is empty")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("the rack is empty")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("a request with member epoch -2 needs an instance id")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"{request.member_epoch} is not a member epoch")
    _check_sizes(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor}, but {', '.join(assignors)}",
        )


def _check_sizes(request: HeartbeatRequest) -> None:
    texts = (
        request.group_id,
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.topic_regex,
        request.client_id,
    )
    if any(text is not None and len(text.encode()) > MAX_TEXT_BYTES for text in texts):
        raise _invalid(f"ids and expressions have at most {MAX_TEXT_BYTES} bytes")
    names = request.topic_names or ()
    if len(names) > MAX_TOPIC_NAMES:
        raise _invalid(f"names {len(names):,} topics; at most {MAX_TOPIC_NAMES:,} in one request")
    longest = max(map(len, names), default=0)
    if longest <= MAX_TOPIC_NAME_LENGTH and not "".join(names).isascii():
        longest = max(len(name.encode()) for name in names)
    if longest > MAX_TOPIC_NAME_LENGTH:
        raise _invalid(f"a topic name has at most {MAX_TOPIC_NAME_LENGTH} characters")


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("a member that joins has to name its rebalance timeout")
    if request.owned is None or request.owned:
        raise _invalid("a member that joins cannot own partitions")
    if request.topic_names is None and request.topic_regex is None:
        raise _invalid("a member that joins has to name its subscription")


def is_leaving(request: HeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


def updated_subscription(before: Subscription, request: HeartbeatRequest) -> Subscription:
    """The subscription after this heartbeat. A member that joins names everything, so nothing is kept from before."""
    if request.member_epoch == JOIN_EPOCH:
        before = Subscription()
    changes: dict[str, object] = {"client_id": request.client_id, "client_host": request.client_host}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topic_names is not None:
        changes["topic_names"] = tuple(sorted(set(request.topic_names)))
    if request.topic_regex is not None:
        changes["topic_regex"] = request.topic_regex
    if request.server_assignor is not None:
        changes["server_assignor"] = request.server_assignor
    return replace(before, **changes)  # type: ignore[arg-type]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
