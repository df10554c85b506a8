"""What happens to the replicas of a node, for the parts that have to know, and for whoever looks on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from protocol import peer

if TYPE_CHECKING:
    from broker.metadata.image import Change
    from broker.replication.replica import Replica
    from raft.types import ReplicaId
    from storage.log_types import GroupKey

#: A node's directory, to which a message goes: (node id, directory id).
Directory = tuple[int, bytes]


def directory_of(replica: ReplicaId) -> Directory:
    """Where its messages go."""
    return replica.node_id, replica.directory_id


class ReplicaEvents:
    """Each list is called at once, in the order of registration. None of them may change a replica's log."""

    def __init__(self) -> None:
        #: Role, term, known leader or establishment of a replica's group differ from before; also when it was opened.
        self.role_changed: list[Callable[[Replica], None]] = []
        #: A replica's high watermark has risen.
        self.commit_advanced: list[Callable[[Replica], None]] = []
        #: A replica's log is about to be cut to this index.
        self.truncating: list[Callable[[Replica, int], None]] = []
        #: (replica, producer id, end offset, is it a commit): a leader has appended a transaction marker.
        self.marker_appended: list[Callable[[Replica, int, int, bool], None]] = []
        #: A replica is gone from this node, whatever becomes of its log.
        self.closed: list[Callable[[GroupKey], None]] = []
        #: The journal has forgotten a group, durably: its topic is deleted.
        self.forgotten: list[Callable[[GroupKey], None]] = []
        #: A replica's log is bad and durably marked so, and it is closed: to be opened again as one that has nothing.
        self.quarantined: list[Callable[[Replica], None]] = []

        #: (leader's replica, node id, [start, end)): that node's replica says something else there.
        self.differ: list[Callable[[Replica, int, tuple[int, int]], None]] = []

    def observe(self, observer: Observer | None, peers: Peers) -> Peers:
        """Returns the way to other nodes, on which the observer looks, too. None: nobody observes."""
        if observer is None:
            return peers
        self.role_changed.append(observer.role_changed)
        self.commit_advanced.append(observer.commit_advanced)
        self.truncating.append(observer.truncating)
        self.differ.append(observer.replicas_differ)
        return ObservedPeers(peers, observer)


class Peers(Protocol):
    """The way to other nodes (`broker.membership.cluster.Cluster`)."""

    def send_to(self, directory: Directory, message: peer.PeerMessage) -> None:
        """To a node, as long as it has that directory."""

    def prepare_to(self, directory: Directory, message: peer.PeerMessage) -> Callable[[], None] | None:
        """`send_to` at once, and in two steps: see `ReplicaHost.prepare`."""


class Observer(Protocol):
    """Sees the moments at which a promise could break, before anybody acts on them. The simulation's oracle is one; in
    production nobody observes. It changes nothing."""

    def role_changed(self, replica: Replica) -> None: ...
    def commit_advanced(self, replica: Replica) -> None: ...
    def truncating(self, replica: Replica, to_index: int) -> None: ...

    def replicas_differ(self, replica: Replica, node_id: int, offsets: tuple[int, int]) -> None:
        """A comparison has found it out, of a leader's replica and that of another node."""

    def sending(self, to: Directory, message: peer.PeerMessage) -> None:
        """A message to another replica is about to leave."""

    def image_changed(self, change: Change) -> None:
        """A committed change of the metadata, as this node replays it."""


class ObservedPeers:
    """`Peers` of a node that is observed."""

    def __init__(self, peers: Peers, observer: Observer) -> None:
        self._peers = peers
        self._observer = observer

    def send_to(self, directory: Directory, message: peer.PeerMessage) -> None:
        self._observer.sending(directory, message)
        self._peers.send_to(directory, message)

    def prepare_to(self, directory: Directory, message: peer.PeerMessage) -> Callable[[], None] | None:
        send = self._peers.prepare_to(directory, message)
        if send is None:
            return None

        def observed() -> None:
            self._observer.sending(directory, message)
            send()

        return observed
