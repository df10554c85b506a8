"""What a group of the consumer protocol takes in memory (broker.coordinator.memory). The constants were measured."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from typing import TYPE_CHECKING

from broker.coordinator.memory import text_size
from broker.coordinator.name_pattern import MAX_MEMORY_BYTES
from broker.groups.consumer_member import Member, Subscription
from broker.metadata.image import MetadataImage

if TYPE_CHECKING:
    from broker.groups.consumer_state import ConsumerGroupState

GROUP_BYTES = 3500
_MEMBER_BYTES = 1700
#: What a member counts for at least, so that its subscription may change a little when memory is short.
MIN_MEMBER_BYTES = 2048
_NAME_BYTES = 130
_PARTITION_BYTES = 200
#: For each member that a partition of the topic is assigned to: three collections.
_ASSIGNED_TOPIC_BYTES = 900
#: How many topic names a step looks up.
_NAMES_PER_STEP = 100
#: An expression that is being matched, and the names that are left.
SEARCH_BYTES = MAX_MEMORY_BYTES


def member_size(member_id: str, subscription: Subscription) -> int:
    texts = (
        member_id,
        subscription.instance_id,
        subscription.rack_id,
        subscription.client_id,
        subscription.client_host,
        subscription.topic_regex,
    )
    return max(
        _MEMBER_BYTES + sum(map(text_size, texts)) + names_size(subscription.topic_names), MIN_MEMBER_BYTES
    )


def names_size(names: Iterable[str]) -> int:
    return sum(_NAME_BYTES + text_size(name) for name in names)


def group_size(group_id: str, durable: ConsumerGroupState) -> int:
    """Without what the topics make it take: `topics_size`."""
    return GROUP_BYTES + text_size(group_id) + durable.members_bytes


def topics_size(
    members: Mapping[str, Member], regexes: Set[str], names: Set[str], image: MetadataImage
) -> Generator[None, None, int]:
    """What the topics that members are subscribed to make a group take, in steps. `regexes`: the expressions that were
    matched; `names`: all topics. A target assignment may be computed later, and an expression matched later. They count
    from the beginning."""
    wanted = {member.subscription.topic_regex for member in members.values()} - {""}
    if not wanted <= regexes:
        return names_size(names) + _largest_assignments_size(len(members), image)
    return names_size(names) + (yield from _assignments_size(names, len(members), image))


def added_size(
    durable: ConsumerGroupState,
    names: Set[str],
    member: Member,
    subscription: Subscription,
    image: MetadataImage,
    *,
    is_new: bool,
) -> Generator[None, None, int]:
    """How much more a group takes when a member, perhaps a new one, has this subscription. `names` as before that."""
    members = len(durable.members) + is_new
    added_bytes = member_size(member.member_id, subscription)
    if not is_new:
        added_bytes -= member_size(member.member_id, member.subscription)
    elif members == 1:
        added_bytes += GROUP_BYTES
    if subscription.topic_regex and subscription.topic_regex not in durable.regexes:
        return added_bytes + _largest_assignments_size(members, image)
    new_names = set(subscription.topic_names) - names
    return added_bytes + names_size(new_names) + (yield from _assignments_size(new_names, members, image))


def _assignments_size(names: Iterable[str], members: int, image: MetadataImage) -> Generator[None, None, int]:
    """What the assignments of these topics take, if their partitions are spread over all members."""
    partitions = pairs = 0
    for count, name in enumerate(names):
        topic = image.topic_named(name)
        if topic is not None:
            partitions += len(topic.partitions)
            pairs += min(len(topic.partitions), members)
        if count % _NAMES_PER_STEP == 0:
            yield
    return partitions * _PARTITION_BYTES + pairs * _ASSIGNED_TOPIC_BYTES


def _largest_assignments_size(members: int, image: MetadataImage) -> int:
    """The same for all topics that there are, roughly."""
    pairs = min(image.partition_count, members * len(image.topics))
    return image.partition_count * _PARTITION_BYTES + pairs * _ASSIGNED_TOPIC_BYTES
