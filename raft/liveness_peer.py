"""What a node knows of one other node: the groups that it leads, and the pings that it has echoed."""

from __future__ import annotations

from collections import deque

from raft.liveness_types import BootId, GroupKey, Led

#: Unanswered pings whose time of sending is remembered; far more than fit into check_quorum_s.
MAX_UNANSWERED = 256


class Peer:
    __slots__ = (
        "applied_version",
        "boot_id",
        "challenged",
        "challenges",
        "confirmed_at",
        "confirmed_number",
        "confirmed_version",
        "echo_is_fresh",
        "following",
        "former_lives",
        "heard_at",
        "is_connected",
        "is_live",
        "last_number",
        "led",
        "node",
        "sent_at",
        "sent_number",
        "sent_version",
    )

    def __init__(self, node: int) -> None:
        self.node = node
        #: This node's own link to it is open.
        self.is_connected = False
        self.boot_id: BootId = None
        #: Boot ids of its earlier processes, whose pings may arrive late.
        self.former_lives: deque[BootId] = deque(maxlen=16)

        # From its pings.
        self.last_number = 0
        self.heard_at = float("-inf")
        #: Its leaderships count. Invariant: true only while it is connected and was heard within the election timeout.
        self.is_live = False
        #: Version of its list that `led` holds.
        self.applied_version = 0
        self.led: dict[GroupKey, Led] = {}
        #: Groups of `led` with the higher term that they have here.
        self.challenged: dict[GroupKey, int] = {}
        #: Groups here that follow it.
        self.following: dict[GroupKey, None] = {}

        # From its echoes of our pings.
        #: (number, time) of pings sent and not echoed.
        self.sent_at: deque[tuple[int, float]] = deque(maxlen=MAX_UNANSWERED)
        #: Version of this node's list as sent on the present link, and the ping that brought it there; 0:
        #: nothing.
        self.sent_version = 0
        self.sent_number = 0
        #: The latest echoed ping, when it was sent, and the version of this node's list that was applied by
        #: then.
        self.confirmed_number = 0
        self.confirmed_at = float("-inf")
        self.confirmed_version = 0
        #: It has echoed a ping of the last check_quorum_s. A change from true to false is reported.
        self.echo_is_fresh = False
        #: Groups led here of which it knows a higher term.
        self.challenges: dict[GroupKey, int] = {}

    def new_life(self, boot_id: BootId) -> None:
        """The node has a new process, which leads nothing and has applied nothing yet."""
        if self.boot_id is not None:
            self.former_lives.append(self.boot_id)
        if boot_id in self.former_lives:
            # The handshake proves that this process is alive. It was counted among the former ones because the
            # handshake of an earlier process came later than the first pings of this one.
            self.former_lives.remove(boot_id)
        self.boot_id = boot_id
        self.last_number = 0
        self.applied_version = 0
        self.led.clear()
        self.challenged.clear()
        self.challenges.clear()
        self.sent_version = 0

    def echoed(self, number: int) -> bool:
        """It has received ping `number`. False: that was known already, or the ping is no longer remembered."""
        found = False
        while self.sent_at and self.sent_at[0][0] <= number:
            sent_number, sent_at = self.sent_at.popleft()
            if sent_number == number:
                self.confirmed_number, self.confirmed_at = number, sent_at
                found = True
        return found
