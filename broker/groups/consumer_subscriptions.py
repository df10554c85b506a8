"""What the members of a consumer group are subscribed to, by name and by regular expression."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping, Set
from hashlib import blake2b
from operator import attrgetter
from uuid import UUID

from broker.coordinator.name_pattern import COMPILE_US, NamePattern, PatternError
from broker.groups.consumer_member import Member, TopicsWanted
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

MEMBERS_PER_STEP = 10
"""How many members a step looks at. To compare what two of them are subscribed to takes up to 0.2 ms."""
NAMES_PER_STEP = 50
"""How many topic names a step looks up."""
REFRESH_S = 1.0
"""The shortest time between two refreshes of all expressions. A thousand topics may be created one after the other."""
MAX_WORK_US = 100_000
"""How long one `match_regexes` may take, by what patterns may cost (`NamePattern.cost_us`). Heartbeats of the group
wait meanwhile."""
MAX_PATTERN_WORK_US = 10_000_000
"""The most that one expression may cost with all topics, by the same count: 3,300 instructions with 10,000 names of 100
characters."""
MAX_CHANGED_BYTES = 512 << 10
"""How many bytes of changed topic names one `match_regexes` gives. They are written in one batch, with the rest of the
decision."""


class Subscriptions:
    """Which expressions have to be matched with the topics, for the first time or again. All of it is soft state.

    Matching is done in slices behind the heartbeats (`match_regexes`). A group may have any number of expressions, and
    a client may send one that takes long on purpose.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        #: `end_offset` of the image when `hash_topics` was last called.
        self._hashed_end_offset = -1
        #: Expressions in use that have to be matched, in order.
        self._pending: dict[str, None] = {}
        #: Expressions in use that need not be matched. The group has the topics of each of them.
        self._matched: set[str] = set()
        #: The search that the last `match_regexes` left unfinished. Invariant: it is of the first pending expression.
        self._search: _Search | None = None
        #: When all expressions last became pending, and `end_offset` of the image then.
        self._refreshed_at: float | None = None
        self._refreshed_end_offset = -1

    @property
    def is_searching(self) -> bool:
        """A search is unfinished: it keeps a compiled expression."""
        return self._search is not None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def may_have_changed(self, regexes: Mapping[str, frozenset[str]], now: float) -> bool:
        """Whether the topics that members are subscribed to may be others than at the last `hash_topics`."""
        has_new_image = self._image.end_offset != self._hashed_end_offset
        return has_new_image or (bool(regexes) and self._is_refresh_due(now))

    def hash_topics(self, names: Iterable[str]) -> Generator[None, None, int]:
        """The `metadata_hash` of the topics of these names."""
        # What changes before the last step is seen the next time.
        self._hashed_end_offset = self._image.end_offset
        return metadata_hash(names, self._image)

    def _is_refresh_due(self, now: float) -> bool:
        """Not while expressions are pending: if topics change all the time, the last ones would never be matched."""
        if self._pending or self._image.end_offset == self._refreshed_end_offset:
            return False
        return self._refreshed_at is None or now >= self._refreshed_at + REFRESH_S

    def use_regexes(self, regexes: Set[str], known: Set[str], now: float) -> None:
        """`regexes` are all expressions that members use, `known` those whose topics the group has. The others become
        pending, and at a refresh all do."""
        self._pending = {regex: None for regex in self._pending if regex in regexes}
        if self._search is not None and self._search.regex not in self._pending:
            # A member that uses the expression later would get the topics of this search, which are old by then.
            self._search = None
        if self._is_refresh_due(now):
            self._matched.clear()
            self._refreshed_at, self._refreshed_end_offset = now, self._image.end_offset
        # An expression whose last member left is dropped by the group. Another member may use it again later.
        self._matched &= regexes & known
        self._pending.update(dict.fromkeys(sorted(regexes - self._matched)))

    def match_regexes(
        self, known: Mapping[str, frozenset[str]]
    ) -> Generator[None, None, dict[str, frozenset[str]]]:
        """Match as many pending expressions as one decision may. Returns those whose topics are not as in `known`. An
        expression that takes too much work, or that only Kafka accepts, keeps the topics that it had."""
        changed = {}
        work_us = size_bytes = 0
        while self._pending and work_us < MAX_WORK_US and size_bytes < MAX_CHANGED_BYTES:
            regex = next(iter(self._pending))
            yield
            try:
                if self._search is None or self._search.regex != regex:
                    self._search = _Search(regex, self._image)
                work_us = yield from self._search.continue_until_limit(work_us)
                if not self._search.is_done:
                    break
                names = frozenset(self._search.found)
            except PatternError as error:
                _log.warning("The regular expression %r keeps the topics that it had: %s", regex, error)
                names = known.get(regex, frozenset())
                work_us = MAX_WORK_US  # The work of an expression that fails is not counted: assume the most.
            self._search = None
            del self._pending[regex]
            self._matched.add(regex)
            if names != known.get(regex):
                changed[regex] = names
                size_bytes += len(regex) + sum(map(len, names))
        return changed


class _Search:
    """The search for the topics whose whole name matches an expression. Internal topics match, too, as in Kafka.
    Raises PatternError."""

    def __init__(self, regex: str, image: MetadataImage) -> None:
        self.regex = regex
        self.found: list[str] = []
        self.is_done = False
        self._pattern = NamePattern(regex)
        #: Names that are still to be matched, from the end. The next refresh sees what is created or deleted meanwhile.
        self._names = image.topic_names()
        self._compile_us = COMPILE_US
        self._matching_us = 0

    def continue_until_limit(self, work_us: int) -> Generator[None, None, int]:
        """Continue until MAX_WORK_US is used up, of which `work_us` is already. Returns how much is used then."""
        work_us, self._compile_us = work_us + self._compile_us, 0
        while self._names and work_us < MAX_WORK_US:
            name = self._names.pop()
            cost_us = self._pattern.cost_us(name)
            self._matching_us += cost_us
            if self._matching_us > MAX_PATTERN_WORK_US:
                raise PatternError("it takes too much work with the topics that there are")
            if self._pattern.matches(name):
                self.found.append(name)
            work_us += cost_us
            yield
        self.is_done = not self._names
        return work_us


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    try:
        NamePattern(regex)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{regex}`: {error}") from None


def topic_names(wanted: TopicsWanted, regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The names of all topics that a member is subscribed to, whether they exist or not."""
    names, regex = wanted
    return frozenset(names) | regexes.get(regex, frozenset())


def all_names(
    members: Iterable[Member], regexes: Mapping[str, frozenset[str]]
) -> Generator[None, None, Set[str]]:
    """The names of all topics that any member is subscribed to."""
    seen: set[TopicsWanted] = set()
    names: set[str] = set()
    for count, member in enumerate(members):
        wanted = member.subscription.topics
        if wanted not in seen:
            seen.add(wanted)
            names |= topic_names(wanted, regexes)
        if count % MEMBERS_PER_STEP == 0:
            yield
    return names


def partition_counts(names: Iterable[str], image: MetadataImage) -> Generator[None, None, dict[UUID, int]]:
    """Topic id -> number of partitions, of those of the topics that exist."""
    counts: dict[UUID, int] = {}
    for count, name in enumerate(names):
        topic = image.topic_named(name)
        if topic is not None:
            counts[topic.topic_id] = len(topic.partitions)
        if count % NAMES_PER_STEP == 0:
            yield
    return counts


def metadata_hash(names: Iterable[str], image: MetadataImage) -> Generator[None, None, int]:
    """A hash that changes when one of these topics is created or deleted, or gets partitions. 0 if none exists."""
    topics = []
    for count, name in enumerate(names):
        if count % NAMES_PER_STEP == 0:
            yield
        topic = image.topic_named(name)
        if topic is not None:
            topics.append(topic)
    topics.sort(key=attrgetter("name"))
    digest = blake2b(digest_size=8)
    for count, topic in enumerate(topics):
        if count % NAMES_PER_STEP == 0:
            yield
        digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if topics else 0
