"""The groups that a node leads, as a list with versions: a ping carries what changed since the last one."""

from __future__ import annotations

from raft.liveness_types import GroupKey, Led

#: Dropped groups are kept in the list of changes until this many more than led ones are in it.
MAX_DROPPED = 1000


class Leadership:
    """A group led here."""

    __slots__ = ("first_check_at", "led", "term_version")

    def __init__(self, led: Led, term_version: int, first_check_at: float) -> None:
        self.led = led
        #: List version that first named this term. A node that has applied it follows this leader or challenges it.
        self.term_version = term_version
        #: Until then has_quorum is true: the followers need time to apply the list.
        self.first_check_at = first_check_at


class LeadershipList:
    """What this node leads now, and which version of the list changed it last."""

    __slots__ = ("_changes", "_led", "version")

    def __init__(self) -> None:
        #: Rises with every change. 0 stands for nothing at all.
        self.version = 1
        self._led: dict[GroupKey, Leadership] = {}
        #: Group -> version of its last change, in the order of versions. Led groups and recently dropped ones.
        self._changes: dict[GroupKey, int] = {}

    def get(self, group: GroupKey) -> Leadership | None:
        return self._led.get(group)

    def set(self, led: Led, first_check_at: float) -> bool:
        """Set the leadership of a group. Returns whether its term is new to the list."""
        self._record_change(led.group)
        known = self._led.get(led.group)
        if known is not None and known.led.term == led.term:
            known.led = led
            return False
        self._led[led.group] = Leadership(led, self.version, first_check_at)
        return True

    def drop(self, group: GroupKey) -> bool:
        """Remove the leadership of a group. Returns whether there was one."""
        if self._led.pop(group, None) is None:
            return False
        self._record_change(group)
        return True

    def changes_since(self, version: int) -> tuple[tuple[Led, ...], tuple[GroupKey, ...]]:
        """(changed leaderships, dropped groups) since that version. 0: (all leaderships, nothing)."""
        if version == 0:
            return tuple(leadership.led for leadership in self._led.values()), ()
        led: list[Led] = []
        dropped: list[GroupKey] = []
        for group in reversed(self._changes):
            if self._changes[group] <= version:
                break
            leadership = self._led.get(group)
            if leadership is None:
                dropped.append(group)
            else:
                led.append(leadership.led)
        return tuple(led), tuple(dropped)

    @property
    def has_many_dropped(self) -> bool:
        """`forget_dropped` would free enough memory to be worth its time."""
        return len(self._changes) > 2 * len(self._led) + MAX_DROPPED

    def forget_dropped(self, version: int) -> None:
        """Free the changes up to that version. The callers know it, or ask for the whole list."""
        self._changes = {
            group: changed
            for group, changed in self._changes.items()
            if group in self._led or changed > version
        }

    def _record_change(self, group: GroupKey) -> None:
        self.version += 1
        self._changes.pop(group, None)
        self._changes[group] = self.version
