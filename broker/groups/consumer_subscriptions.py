"""What the members of a consumer group are subscribed to, by name and by regular expression."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from hashlib import blake2b
from uuid import UUID

from broker.groups.consumer_member import Member, TopicsWanted
from broker.groups.topic_pattern import COMPILE_US, PatternError, TopicPattern
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

REFRESH_S = 1.0
"""Expressions are matched with new topics at most this often: a thousand topics may be made one after the other."""
MAX_WORK_US = 100_000
"""Of one `match`, which holds the loop no longer than that, by what patterns may cost (`TopicPattern.cost_us`)."""
MAX_PATTERN_WORK_US = 10_000_000
"""Of one expression with all topics, by the same count: 3,300 instructions with 10,000 names of 100 characters."""
MAX_CHANGED_BYTES = 512 << 10
"""Of topic names that one `match` finds to be others: they are written in one batch, with whatever else was decided."""


class Subscriptions:
    """Which expressions have to be matched with the topics (again). All of it is soft state.

    That is done piece by piece behind the heartbeats (`match`): there may be any number of expressions, and somebody
    may mean harm with each of them.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        #: `end_offset` of the image when topics were last looked at.
        self._looked = -1
        #: Expressions in use that have to be matched, in the order of their turns; and those that do not, which are all
        #: known to the group.
        self._pending: dict[str, None] = {}
        self._matched: set[str] = set()
        #: What was not finished by the last `match`: that of the first one pending, as long as it is pending.
        self._search: _Search | None = None
        #: When all expressions were last put down to be matched, and `end_offset` of the image then.
        self._refreshed = -1
        self._refreshed_at: float | None = None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def may_have_changed(self, regexes: Mapping[str, frozenset[str]], now: float) -> bool:
        return self._image.end_offset != self._looked or (bool(regexes) and self._is_refresh_due(now))

    def look(self, names: Iterable[str]) -> int:
        """The hash of the topics of these names."""
        self._looked = self._image.end_offset
        return metadata_hash(names, self._image)

    def _is_refresh_due(self, now: float) -> bool:
        """Not before all had their turn: the last ones would never have it while topics come and go."""
        if self._pending or self._image.end_offset == self._refreshed:
            return False
        return self._refreshed_at is None or now >= self._refreshed_at + REFRESH_S

    def use(self, regexes: Set[str], known: Set[str], now: float) -> None:
        """`regexes` are all expressions that members use. Those whose topics are not known, and from time to time all,
        are to be matched."""
        self._pending = {regex: None for regex in self._pending if regex in regexes}
        if self._search is not None and self._search.regex not in self._pending:
            self._search = None  # or who uses it next year would get the topics of today
        if self._is_refresh_due(now):
            self._matched.clear()
            self._refreshed, self._refreshed_at = self._image.end_offset, now
        self._matched &= regexes & known  # what was dropped with its last member may be back with another one
        self._pending.update(dict.fromkeys(sorted(regexes - self._matched)))

    def match(self, known: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """As many of those pending as one decision may take; those whose topics are others than is known. One that is
        too much work, or that only Kafka takes for an expression, keeps those that it had."""
        changed = {}
        work_us = size_bytes = 0
        while self._pending and work_us < MAX_WORK_US and size_bytes < MAX_CHANGED_BYTES:
            regex = next(iter(self._pending))
            try:
                if self._search is None or self._search.regex != regex:
                    self._search = _Search(regex, self._image)
                work_us = self._search.go_on(work_us)
                if not self._search.is_done:
                    break
                names = frozenset(self._search.found)
            except PatternError as error:
                _log.warning("the topics of the expression %r stay as they are: %s", regex, error)
                names = known.get(regex, frozenset())
                work_us = MAX_WORK_US  # what it took, nobody has counted
            self._search = None
            del self._pending[regex]
            self._matched.add(regex)
            if names != known.get(regex):
                changed[regex] = names
                size_bytes += len(regex) + sum(map(len, names))
        return changed


class _Search:
    """For the topics whose whole name matches; internal ones, too, as in Kafka. Raises PatternError."""

    def __init__(self, regex: str, image: MetadataImage) -> None:
        self.regex = regex
        self.found: list[str] = []
        self.is_done = False
        self._pattern = TopicPattern(regex)
        #: Not looked at yet, the last one first; what is made or deleted meanwhile is for the next refresh.
        self._names = [topic.name for topic in image.topics.values()]
        self._compile_us = len(regex) * COMPILE_US
        self._matching_us = 0

    def go_on(self, work_us: int) -> int:
        """Until MAX_WORK_US is done, of which `work_us` is already; returns what is then."""
        work_us, self._compile_us = work_us + self._compile_us, 0
        while self._names and work_us < MAX_WORK_US:
            name = self._names.pop()
            cost_us = self._pattern.cost_us(name)
            self._matching_us += cost_us
            if self._matching_us > MAX_PATTERN_WORK_US:
                raise PatternError("too much work with the topics that there are")
            if self._pattern.matches(name):
                self.found.append(name)
            work_us += cost_us
        self.is_done = not self._names
        return work_us


def check_regex(regex: str) -> None:
    """Raises KafkaError for what is no expression."""
    try:
        TopicPattern(regex)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{regex}`: {error}") from None


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
