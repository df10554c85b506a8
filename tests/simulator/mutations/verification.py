"""When replicas may be compared (broker/verification/README.md): otherwise healthy ones seem to differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from broker.replication.digest_state import DigestState
from broker.replication.replica import Replica
from broker.verification.own_digest import DigestMaker
from broker.verification.results import Compared, NotComparedError, Question
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import off
from tests.simulator.plan import VERIFY_INTERVAL_MS


@contextmanager
def compared_often(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    del rng
    cluster.config = replace(cluster.config, verify_interval_ms=VERIFY_INTERVAL_MS)
    yield


def a_member_compacts_before_it_answers(stage: Stage) -> None:
    """The leader asks up to its last stable offset. The newest record of the key there is superseded by one above, and
    the member removes it."""
    topic = CompactedTopic(stage)
    leader, member, _ = topic.leader_and_followers()
    with topic.passes_held(1, 2, 3) as held:
        for number in range(stage.rng.randrange(1, 5)):
            topic.put(b"%d" % number)
        stage.everybody_has_all()
        with _asked(stage, leader, member):
            superseding = topic.put(b"newer")
            topic.put(b"in the next segment", key=b"other")
            del held[member]
            topic.wait_cleaned(member, above=superseding)


def a_member_deletes_before_it_answers(stage: Stage) -> None:
    """The leader asks from its log start, which rises then, and the member deletes a segment."""
    topic = CompactedTopic(stage, cleanup_policy="delete", retention_ms="-1")
    leader, member, _ = topic.leader_and_followers()
    with topic.passes_held(1, 2, 3):
        for number in range(stage.rng.randrange(3, 8)):
            last = topic.put(b"x" * 1200, key=b"%d" % number)  # a segment of its own
        stage.everybody_has_all()
        with _asked(stage, leader, member):
            stage.delete_below(stage.rng.randint(1, last))
            log = stage.replica(member).log
            stage.wait(lambda: log.first_stored_offset > 0)


@contextmanager
def _asked(stage: Stage, leader: int, member: int) -> Iterator[None]:
    """The leader compares, and this member hears of it later."""
    found: list[Compared | NotComparedError] = []
    messages, unheard = stage.cluster.nodes[member].messages, list[object]()
    heard = messages.on_digest_request
    messages.on_digest_request = [lambda *question: unheard.append(question)]
    stage.call(
        leader,
        stage.cluster.nodes[leader].verification.ask,
        stage.replica(leader),
        found.append,
        lambda: False,
    )
    stage.wait(lambda: bool(unheard))
    yield
    messages.on_digest_request = heard  # the leader asks again
    stage.wait(lambda: bool(found))
    assert isinstance(found[0], Compared), found


def _without(state: DigestState) -> Callable[[Any], Any]:
    """This is no obstacle."""

    def make(obstacle: Callable[..., DigestState | None]) -> object:
        def found(self: DigestMaker, replica: Replica, question: Question) -> DigestState | None:
            answer = obstacle(self, replica, question)
            return None if answer is state else answer

        return found

    return make


MUTATIONS = (
    Mutation(
        "compared-below-what-is-compacted",
        "A view is compared up to an end at or above which its replica has compacted nothing (broker/verification)",
        off((DigestMaker, "obstacle", _without(DigestState.COMPACTED_FURTHER))),
        story=a_member_compacts_before_it_answers,
    ),
    Mutation(
        "compared-when-known-to-be-committed",
        "A replica says nothing of what it does not know to be committed, or lacks (broker/verification)",
        off((DigestMaker, "obstacle", _without(DigestState.BEHIND))),
        mix=None,
        conditions=compared_often,
    ),
    Mutation(
        "compared-from-the-latest-start",
        "A view is compared from the latest log start of all replicas (broker/verification)",
        off((DigestMaker, "obstacle", _without(DigestState.STARTS_LATER))),
        story=a_member_deletes_before_it_answers,
    ),
)
