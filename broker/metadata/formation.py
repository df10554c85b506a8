"""How a cluster comes to be, once: the state machine of replication.md section 10, for one node.

A *formation* names the cluster and the identities of its first metadata voters. Only the *starter*, the
lowest-numbered configured voter, makes one, and only when every configured voter, itself included, is empty. A
voter that is named in a formation holds it as row 0 of the metadata group; whoever knows it passes it on to every
node that is still empty. An empty node that is not named joins the cluster as a lost identity: it takes the
cluster id, writes no row 0, and waits to be added as a learner.

    EMPTY --(starter: two rounds of "empty" from all)--> PERSISTING --> MEMBER    row 0 written
    EMPTY --(Form that names this directory)-----------> PERSISTING --> MEMBER
    EMPTY --(Form that does not)-----------------------> PERSISTING --> JOINED    cluster id only

The directory id has to be durable before the first Hello names it: a restart is not a lost volume.

Promise: **when a formation is made, no intact disk holds another one, and none ever will** (given one process per
node id). Two rules carry it, beside "all say empty":

- *Bound answers.* A voter that told the starter "empty" refuses a formation that names another directory of the
  starter, until the starter itself passes that formation on. Meanwhile it relays the formation to that directory.
- *Two rounds.* After all have answered, the starter connects to each again and wants the same answers, from the same
  directories. So there was one moment at which all were empty: an answer cannot be out of date.

Schedules (scripted in tests/broker/metadata/test_metadata_formation.py; others by random exploration there). 1' is
node 1 on a new volume, F1 names (1, 2, 3), F2 names (1', 2, 3):

1. *Two volumes lost.* 1' and 2' are empty, 3 holds F1. 3 answers, or does not: no formation either way. 3 passes F1
   on; 1' and 2' are not named and join. There is no majority, and 3 keeps what it has: a person decides.
2. *Starter wiped after forming alone.* 1 persisted F1 and told nobody. 1', 2 and 3 are empty: F2. Nobody holds F1.
3. *The same, with F1 on its way.* 2 told 1' "empty", then F1 arrives from the dead process of 1. 2 refuses: bound.
   Had F1 come first, 2 would not have said "empty"; it passes F1 to 3, and 1' joins.
4. *Voter wiped between hello and Form.* F1 names 2; 2' is not named and joins, 1 and 3 are a majority. If 3 was
   wiped too, 1 is alone for ever: it cannot know that nothing was acknowledged. A person starts again with empty disks.
5. *Starter stopped after forming.* It comes back as a holder of F1 and passes it on to all that are empty.
6. *Answer out of date.* 2 told 1' "empty" and lost power, unnoticed by 1'. 2 returns and takes F1 from 3. 3 is wiped
   and answers "empty". With one round, 1' would make F2 and leave 2 with what it acknowledged; the second round finds
   2 with F1.
7. *Holder meets a bound voter.* 1' was told "empty" by 2; 3 holds F1 and offers it to 2, which relays it to 1'. 1'
   joins and passes F1 on to 2, which takes it: now it comes from 1' itself. (Should 1' stop for ever in between, 2
   waits; a restart of 2 frees it, and is a person's decision that 1' formed nothing.)
8. *Relayed too late.* As in 3, 2 refuses F1, and keeps it for 1', which cannot be reached. 1' makes F2, tells 3, and is
   wiped. 2 does not tell 1'' of F1: 1'' would pass it on, and 2 take it, while 3 holds F2.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from broker.metadata.ids import cluster_id_problem, random_cluster_id
from protocol.errors import ErrorCode


class FoundingVoter(NamedTuple):
    node_id: int
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class Formation:
    cluster_id: str
    voters: tuple[FoundingVoter, ...]
    """In the order of node ids."""

    def directory_of(self, node_id: int) -> UUID | None:
        return next((voter.directory_id for voter in self.voters if voter.node_id == node_id), None)


def formation_problem(formation: Formation) -> str | None:
    """Why no cluster can have been formed so. None: one can."""
    problem = cluster_id_problem(formation.cluster_id)
    node_ids = [voter.node_id for voter in formation.voters]
    if problem is None and (not node_ids or node_ids[0] < 0 or node_ids != sorted(set(node_ids))):
        problem = f"the voters {node_ids}"
    return problem


class FormationState(Enum):
    EMPTY = "empty"
    PERSISTING = "persisting"
    MEMBER = "member"
    JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Persist:
    """Make the formation durable, then report `persisted()`.

    Founding: row 0 of the metadata group, naming the voters with incarnation 0, and after it the cluster id.
    Otherwise: the cluster id only. A crash in between leaves an empty node: row 0 without a cluster id is discarded.
    """

    formation: Formation
    founding: bool


@dataclass(frozen=True, slots=True)
class SendForm:
    """Send Form on the connection that we dialled. If that fails, the next `answered()` orders it again."""

    node_id: int
    formation: Formation


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Close the connection that we dialled to this node and dial again, for a fresh answer."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Asked by `introduced`: answer with this error in the HelloReply, and close the connection. Otherwise there is
    nobody to answer: log it. `message` is for people, on both sides."""

    code: ErrorCode
    message: str


Order = Persist | SendForm | Reconnect | Refuse


@dataclass(frozen=True, slots=True)
class _Answer:
    directory_id: UUID
    is_empty: bool


class ClusterFormation:
    """Facts in, orders out; no clock, no I/O.

    `configured_cluster_id`: what this node's configuration demands, if anything. `cluster_id` and `held`: what its
    disk says; a cluster id without row 0 is a node that joined.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: UUID,
        configured_voters: Collection[int],
        rng: random.Random,
        *,
        configured_cluster_id: str | None = None,
        cluster_id: str | None = None,
        held: Formation | None = None,
    ) -> None:
        assert configured_voters
        assert held is None or held.cluster_id == cluster_id
        self.node_id = node_id
        self.directory_id = directory_id
        self._voters = sorted(configured_voters)
        self._starter = self._voters[0]
        self._rng = rng
        self._configured_cluster_id = configured_cluster_id
        #: None in EMPTY and only there; from PERSISTING on, this is what our Hello says.
        self._cluster_id = cluster_id
        #: What we pass on. None in EMPTY, and in a node that lost row 0 and has not been sent it again.
        self._held = held
        self._state = FormationState.EMPTY
        if cluster_id is not None:
            named = held is not None and held.directory_of(node_id) == directory_id
            self._state = FormationState.MEMBER if named else FormationState.JOINED
        #: Answers to our Hellos, on connections that are open now.
        self._answers: dict[int, _Answer] = {}
        #: The directories that answered in the first round, while the second is under way.
        self._first_round: dict[int, UUID] | None = None
        #: The directory of the starter that introduced itself last, and those it has replaced.
        self._starter_directory: UUID | None = None
        self._former_starter_directories: list[UUID] = []
        #: The directory of the starter to which we answered "empty" and are bound.
        self._bound_to: UUID | None = None
        #: A formation that we refused because we are bound: that directory of the starter has to hear of it.
        self._relayed: Formation | None = None

    @property
    def state(self) -> FormationState:
        return self._state

    @property
    def cluster_id(self) -> str | None:
        """What our Hello and HelloReply say. None means "empty", and is no longer said once an order to persist is
        out."""
        return self._cluster_id

    @property
    def formation(self) -> Formation | None:
        return self._held

    def start(self) -> list[Order]:
        """The node is up. Orders something at once only where it is the sole voter."""
        return self._consider_starting()

    def introduced(self, node_id: int, directory_id: UUID, cluster_id: str | None) -> Refuse | None:
        """A peer dialled and said Hello. To be called before our HelloReply is made: that answer may bind us."""
        if node_id == self.node_id:
            return Refuse(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"this is node {node_id}; no other node may have that id",
            )
        refusal = self._check_cluster_id(node_id, cluster_id)
        if refusal is not None or node_id != self._starter or self._state is not FormationState.EMPTY:
            return refusal
        if directory_id in self._former_starter_directories:
            return Refuse(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"node {node_id} has since introduced itself with another data directory",
            )
        if self._starter_directory not in (None, directory_id):
            assert self._starter_directory is not None
            self._former_starter_directories.append(self._starter_directory)
        self._starter_directory = directory_id
        if cluster_id is None and self.node_id in self._voters and self._bound_to != directory_id:
            self._bound_to = directory_id
            self._relayed = None
        return None

    def answered(self, node_id: int, directory_id: UUID, cluster_id: str | None) -> list[Order]:
        """A peer replied to our Hello, on the connection that we dialled. (Its own Hello does not count: it may have
        been sent before the peer heard of us, so it binds the peer to nothing.)"""
        refusal = self._check_cluster_id(node_id, cluster_id)
        if refusal is not None:
            return [refusal]
        self._answers[node_id] = _Answer(directory_id, cluster_id is None)
        if cluster_id is None and self._state in (FormationState.MEMBER, FormationState.JOINED):
            return [] if self._held is None else [SendForm(node_id, self._held)]
        return self._relay() or self._consider_starting()

    def closed(self, node_id: int) -> None:
        """The connection that we dialled is gone, and what was answered on it with it."""
        self._answers.pop(node_id, None)

    def form_received(self, node_id: int, directory_id: UUID, formation: Formation) -> list[Order]:
        """A peer, as introduced on that connection, passes a formation on. No order: it is known here already."""
        refusal = self._check_cluster_id(node_id, formation.cluster_id)
        if refusal is not None:
            return [refusal]
        if self._state is not FormationState.EMPTY:
            if self._held not in (None, formation):
                message = f"cluster {formation.cluster_id} was formed twice, with different voters"
                return [Refuse(ErrorCode.INCONSISTENT_VOTER_SET, message)]
            return []
        if self._is_bound_against(formation) and (node_id, directory_id) != (self._starter, self._bound_to):
            self._relayed = formation
            message = (
                f"bound to node {self._starter}, which is forming a cluster and has to join this one first"
            )
            return [Refuse(ErrorCode.INCONSISTENT_VOTER_SET, message), *self._relay()]
        named = formation.directory_of(self.node_id) == self.directory_id
        if named and [voter.node_id for voter in formation.voters] != self._voters:
            message = f"node {self.node_id} is configured with the voters {self._voters}, not with those of the Form"
            return [Refuse(ErrorCode.INCONSISTENT_VOTER_SET, message)]
        return [self._persist(formation, founding=named)]

    def persisted(self) -> list[Order]:
        """The last Persist is durable. Only now may others learn the formation from us."""
        assert self._state is FormationState.PERSISTING and self._held is not None
        named = self._held.directory_of(self.node_id) == self.directory_id
        self._state = FormationState.MEMBER if named else FormationState.JOINED
        return self._tell_empty_nodes()

    def learned(self, formation: Formation) -> list[Order]:
        """Row 0 of the metadata group is here, from its leader. All others that held it may be gone, so we pass it on,
        too."""
        assert self._held is None and formation.cluster_id == self._cluster_id
        self._held = formation
        return self._tell_empty_nodes()

    def waiting_for(self) -> str | None:
        """For the log and for status: why this node has no cluster yet. None: it has one."""
        if self._cluster_id is not None:
            return None
        if self.node_id != self._starter:
            if self._relayed is not None:
                return f"empty, waiting for node {self._starter} to join cluster {self._relayed.cluster_id} first"
            return (
                f"empty, waiting for node {self._starter} to form the cluster, or for any node that knows one"
            )
        holders = [node_id for node_id in self._voters if not self._answers.get(node_id, _NOBODY).is_empty]
        if holders:
            return f"empty, waiting to be told the cluster of node {holders[0]}"
        silent = [str(n) for n in self._voters if n != self.node_id and n not in self._answers]
        return f"empty, waiting for an answer from the voters {', '.join(silent)}"

    def _check_cluster_id(self, node_id: int, cluster_id: str | None) -> Refuse | None:
        own = self._cluster_id or self._configured_cluster_id
        if cluster_id is None or own is None or cluster_id == own:
            return None
        return Refuse(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"node {self.node_id} belongs to cluster {own}, node {node_id} to cluster {cluster_id}",
        )

    def _is_bound_against(self, formation: Formation) -> bool:
        return self._bound_to is not None and formation.directory_of(self._starter) != self._bound_to

    def _relay(self) -> list[Order]:
        """Only to the directory that we are bound to. It may have formed another cluster since, and been lost: then the
        next one must not hear of this one."""
        answer = self._answers.get(self._starter, _NOBODY)
        if self._relayed is None or not answer.is_empty or answer.directory_id != self._bound_to:
            return []
        return [SendForm(self._starter, self._relayed)]

    def _consider_starting(self) -> list[Order]:
        if self._state is not FormationState.EMPTY or self.node_id != self._starter:
            return []
        others = self._voters[1:]
        if not all(node_id in self._answers and self._answers[node_id].is_empty for node_id in others):
            return []
        directories = {node_id: self._answers[node_id].directory_id for node_id in others}
        if directories != self._first_round and others:
            self._first_round = directories
            self._answers.clear()
            return [Reconnect(node_id) for node_id in others]
        directories[self.node_id] = self.directory_id
        cluster_id = self._configured_cluster_id or random_cluster_id(self._rng)
        voters = tuple(FoundingVoter(node_id, directories[node_id]) for node_id in self._voters)
        return [self._persist(Formation(cluster_id, voters), founding=True)]

    def _tell_empty_nodes(self) -> list[Order]:
        assert self._held is not None
        empty = [node_id for node_id, answer in self._answers.items() if answer.is_empty]
        return [SendForm(node_id, self._held) for node_id in sorted(empty)]

    def _persist(self, formation: Formation, *, founding: bool) -> Persist:
        assert self._state is FormationState.EMPTY
        self._state = FormationState.PERSISTING
        self._cluster_id = formation.cluster_id
        self._held = formation
        self._relayed = None
        return Persist(formation, founding)


_NOBODY = _Answer(UUID(int=0), is_empty=True)
