"""What the members of a consumer group are subscribed to, by name and by regular expression."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from uuid import UUID

from broker.groups.consumer_member import Member, TopicsWanted
from broker.groups.topic_pattern import PatternError, TopicPattern
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

REFRESH_S = 1.0
"""Expressions are matched with new topics at most this often: a thousand topics may be made one after the other."""


class Subscriptions:
    """Whether what a group is subscribed to has to be looked at again. All of it is soft state."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._patterns: dict[str, TopicPattern] = {}
        #: `end_offset` of the image when topics were last looked at, and when they were matched.
        self._looked = -1
        self._matched = -1
        self._matched_at: float | None = None

    def may_have_changed(self, regexes: Mapping[str, frozenset[str]], now: float) -> bool:
        return self._image.end_offset != self._looked or (bool(regexes) and self._is_match_due(now))

    def look(self, names: Iterable[str]) -> int:
        """The hash of the topics of these names."""
        self._looked = self._image.end_offset
        return metadata_hash(names, self._image)

    def _is_match_due(self, now: float) -> bool:
        if self._image.end_offset == self._matched:
            return False
        return self._matched_at is None or now >= self._matched_at + REFRESH_S

    def compile(self, used: Collection[str]) -> None:
        """Take on the expressions that members use. Raises KafkaError for one that is none."""
        for regex in used:
            if regex not in self._patterns:
                try:
                    self._patterns[regex] = TopicPattern(regex)
                except PatternError as error:
                    raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{regex}`: {error}") from None
        for regex in self._patterns.keys() - set(used):
            del self._patterns[regex]

    def match(
        self, known: Mapping[str, frozenset[str]], now: float, *, with_new: bool
    ) -> dict[str, frozenset[str]]:
        """The expressions taken on whose topics are others than is known. `with_new`: also those that nothing is known
        of. One that is too much work for the topics there are keeps those that it had."""
        is_due = self._is_match_due(now)
        changed = {}
        for regex, pattern in self._patterns.items():
            if not (is_due if regex in known else with_new):
                continue
            try:
                names = resolve(pattern, self._image)
            except PatternError as error:
                _log.warning("the topics of the expression %r stay as they are: %s", regex, error)
                names = known.get(regex, frozenset())
            if names != known.get(regex):
                changed[regex] = names
        if is_due:
            self._matched, self._matched_at = self._image.end_offset, now
        return changed


def topic_names(wanted: TopicsWanted, regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """All that a member wants, whether it exists or not."""
    names, regex = wanted
    return frozenset(names) | regexes.get(regex, frozenset())


def all_names(members: Iterable[Member], regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What any member wants."""
    wanted = {member.subscription.topics for member in members}
    return frozenset().union(*(topic_names(each, regexes) for each in wanted))


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[UUID]:
    topics = (image.topic_named(name) for name in names)
    return frozenset(topic.topic_id for topic in topics if topic is not None)


MAX_PATTERN_WORK = 500_000
"""Instructions of a pattern for all topics together: a tenth of a second. States that were met before cost nothing,
so an expression that reaches it goes other ways with every name."""


def resolve(pattern: TopicPattern, image: MetadataImage) -> frozenset[str]:
    """The topics whose whole name matches; internal ones, too, as in Kafka. Raises PatternError for too much work."""
    names = []
    limit = pattern.work + MAX_PATTERN_WORK
    for topic in image.topics.values():
        if pattern.matches(topic.name):
            names.append(topic.name)
        if pattern.work > limit:
            raise PatternError("too much work with the topics that there are")
    return frozenset(names)


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """Differs where a topic subscribed to was made, deleted, or got more partitions. 0 where none exists."""
    digest = blake2b(digest_size=8)
    any_exists = False
    for name in sorted(names):
        topic = image.topic_named(name)
        if topic is not None:
            any_exists = True
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if any_exists else 0
