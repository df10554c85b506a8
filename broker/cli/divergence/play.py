"""The order of steps: all scenarios at once, each on a topic of its own, so that a broker goes away only once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.cli.divergence.brokers import Brokers, LocalBrokers
from broker.cli.divergence.scenarios import Answer, Scenario, TombstoneResurrected
from broker.cli.divergence.table import LIMIT_S, Table
from broker.cli.divergence.topics import Topics
from broker.cli.divergence.variants import Variant
from broker.cli.root import CommandError

#: Churn: something new is written so often, until each broker that runs has compacted every topic so many times again
#: and this long. A tombstone goes with the second pass and 0.5 s, a marker with the third and 1.5 s.
_FILLER_S = 0.4
_PASSES = 6
_CHURN_S = 5.0
#: Where brokers do not tell how often they have compacted.
_BLIND_CHURN_S = 10.0
#: How often it is said how far that is.
_PROGRESS_S = 2.0


class Narrator(Protocol):
    def say(self, text: str) -> None: ...

    def show(self, text: str, commands: Sequence[str]) -> None:
        """Something can be looked at now, with these arguments of `varve`."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Of one scenario."""

    scenario: type[Scenario]
    #: None: it is another cluster's own affair.
    is_coordinated: bool | None
    #: Node id -> what it answered when it led.
    answers: dict[int, Answer]

    @property
    def is_damaged(self) -> bool:
        return any(answer.is_damaged for answer in self.answers.values())


class Play:
    """One run, on one cluster. Its clients end with it."""

    def __init__(
        self,
        brokers: Brokers,
        scenarios: Sequence[type[Scenario]],
        variant: Variant,
        narrator: Narrator,
        *,
        is_coordinated: bool | None,
        suffix: str = "",
    ) -> None:
        """`suffix`: of the names of topics and transactional ids."""
        self.brokers = brokers
        self._variant = variant
        self._narrator = narrator
        self._is_coordinated = is_coordinated
        self._filler_count = 0
        bootstrap_server = brokers.bootstrap_server
        names = [f"divergence-{scenario.number}{suffix}" for scenario in scenarios]
        self._scenarios = [
            scenario(Table(bootstrap_server, name), f"varve-demo-{name}")
            for scenario, name in zip(scenarios, names, strict=True)
        ]
        self.topics = Topics(bootstrap_server, names)
        nodes = sorted(self.topics.cluster().alive)[:3]
        if len(nodes) < 3:
            raise CommandError(f"the cluster has {len(nodes)} brokers; three are needed")
        #: Node ids. The first one is the preferred leader.
        self.replicas = [nodes[1], nodes[0], nodes[2]]
        self.away: int = nodes[1]

    @property
    def local(self) -> LocalBrokers:
        assert isinstance(self.brokers, LocalBrokers), "the variant is for brokers of our own"
        return self.brokers

    @property
    def others(self) -> list[int]:
        return [node_id for node_id in self.replicas if node_id != self.away]

    def run(self) -> list[Outcome]:
        """Play it, and ask every replica. Raises CommandError, KafkaException."""
        self._prepare()
        self._write_and_leave()
        self._go_on_without()
        self._come_back()
        return self._ask_everybody()

    # -- steps

    def _prepare(self) -> None:
        say = self._narrator.say
        say(f"topics are created: one partition, replicas on the nodes {sorted(self.replicas)}")
        self.topics.create(self.replicas)
        self._variant.prepare(self)
        self.topics.wait_in_sync(self.replicas)
        self.topics.lead(self.away, self.replicas)

    def _write_and_leave(self) -> None:
        for each in self._scenarios:
            self._narrator.say(f"scenario {each.number} writes: {each.written[0]}")
            each.write_before()
        self.topics.wait_in_sync(self.replicas)
        self._show("All replicas are equal. What is not committed yet stands behind the last stable offset.")
        self._narrator.say(f"node {self.away} goes away: {self._variant.text}")
        self._variant.leave(self)
        self.topics.away.add(self.away)
        self.topics.wait_led()

    def _go_on_without(self) -> None:
        for each in self._scenarios:
            self._narrator.say(f"scenario {each.number} writes: {each.written[1]}")
            each.write_meanwhile()
        self._show(f"Node {self.away} knows nothing of this. The others are about to compact.")
        self.churn("the others compact, delete.retention.ms goes by")
        self._variant.midway(self)
        for each in self._scenarios:
            if len(each.written) > 2:
                self._narrator.say(f"scenario {each.number} writes: {each.written[2]}")
                each.write_later()
        # No more churn: what has just been written must be as it is when the replica comes back.
        self._show("A reader that comes now sees what is right: the leader has not been away.")

    def _come_back(self) -> None:
        self._narrator.say(f"node {self.away} comes back")
        self._variant.come_back(self)
        self.returned()
        self._show(f"All replicas are in sync, and nobody has noticed anything. Node {self.away} leads next.")

    def _ask_everybody(self) -> list[Outcome]:
        answers: dict[Scenario, dict[int, Answer]] = {each: {} for each in self._scenarios}
        for node_id in [*self.others, self.away]:
            self.topics.lead(node_id, self.replicas)
            for each in self._scenarios:
                answers[each][node_id] = each.answer(each.table.read())
            said = "; ".join(f"{each.number}: {answers[each][node_id].text}" for each in self._scenarios)
            self._narrator.say(f"node {node_id} leads and answers: {said}")
        self._show(f"Node {self.away} leads. This is what it answers.")
        if self._is_coordinated and not any(
            answer.is_damaged for of in answers.values() for answer in of.values()
        ):
            self._wait_until_deletions_go()
        return [
            Outcome(type(each), self._is_coordinated, dict(sorted(answers[each].items())))
            for each in self._scenarios
        ]

    def _wait_until_deletions_go(self) -> None:
        """Nothing is kept for longer than a replica needs it."""
        for each in self._scenarios:
            if isinstance(each, TombstoneResurrected):
                deadline = time.monotonic() + LIMIT_S
                while each.table.read().deletion_count:
                    if time.monotonic() > deadline:
                        raise CommandError(f"the deletion is still there after {LIMIT_S:.0f} s")
                    self._fill()
                    time.sleep(_FILLER_S)
                self._narrator.say("every replica is clean now, and the deletion of k goes: nobody needs it")

    # -- what variants use

    def returned(self) -> None:
        """The replica that was away has caught up."""
        self.topics.away.discard(self.away)
        self.topics.wait_in_sync(self.replicas)

    def move(self, replicas: Sequence[int]) -> None:
        """Change the replicas, and wait for it."""
        self._narrator.say(f"the replicas move to the nodes {sorted(replicas)}")
        self.topics.away -= {self.away} & set(replicas)
        self.topics.reassign(replicas)
        self.topics.wait_in_sync(replicas)
        self.replicas = list(replicas)

    def churn(self, what: str) -> None:
        """Write until every broker that is there has compacted everything many times."""
        say, begun = self._narrator.say, time.monotonic()
        say(what)
        wanted = {place: count + _PASSES for place, count in self._passes().items()}
        next_progress_at = begun + _PROGRESS_S
        while True:
            self._fill()
            time.sleep(_FILLER_S)
            now, passes = time.monotonic(), self._passes()
            left = {place: wanted[place] - count for place, count in passes.items()}
            most = max(left.values(), default=0)
            if most <= 0 and now - begun > (_CHURN_S if passes else _BLIND_CHURN_S):
                return
            if now > begun + LIMIT_S:
                node_id, topic = max(left, key=lambda place: left[place])
                raise CommandError(
                    f"node {node_id} has not compacted {topic} often enough in {LIMIT_S:.0f} s"
                )
            if now > next_progress_at:
                next_progress_at += _PROGRESS_S
                say(f"  {now - begun:.0f} s" + (f", {max(most, 0)} passes to go" if passes else ""))

    def _passes(self) -> dict[tuple[int, str], int]:
        """Of each broker that is there, over each topic. Empty: brokers do not tell."""
        found = {}
        for node_id in self.replicas:
            for each in self._scenarios:
                count = self.brokers.passes(node_id, each.table.topic)
                if count is not None and node_id not in self.topics.away:
                    found[node_id, each.table.topic] = count
        return found

    def _fill(self) -> None:
        self._filler_count += 1
        for each in self._scenarios:
            each.table.write((b"filler", b"%d" % self._filler_count))

    def _show(self, text: str) -> None:
        at = f"-b {self.brokers.bootstrap_server}"
        commands = []
        for each in self._scenarios:
            topic = each.table.topic
            commands.append(f"consume {topic} --from-beginning -e -K = --isolation-level read_committed {at}")
            commands.append(f"topic describe {topic} --offsets {at}")
        self._narrator.show(text, commands)
