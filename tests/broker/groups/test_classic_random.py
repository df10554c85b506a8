"""Random lives of the members of a classic group: invariants hold at each step, and in the end the group is stable."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.classic_rebalance import MIN_INITIAL_DELAY_S
from broker.groups.classic_states import ClassicState
from protocol.errors import ErrorCode
from tests.broker.groups.classic_driver import REBALANCE_S, SESSION_S, Driver
from tests.broker.groups.tickets import AnyTicket

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState
PARTITIONS = range(12)
PROTOCOLS = ((("a", b"1"),), (("b", b"2"), ("a", b"1")), (("a", b"3"), ("b", b"2")))
RARE = ("change", "abandon", "crash", "leave", "fail over")
#: Long enough for silent members to be removed, new ones included, and for the others to rebalance.
HEALING_S = 400.0


class Client:
    """A consumer, one step at a time. It may be killed, lose its connection, and change its subscription."""

    def __init__(self, driver: Driver, world: World, instance: str | None) -> None:
        self.driver = driver
        self.world = world
        self.instance = instance
        self.protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS[0]
        self.start()

    def start(self) -> None:
        """A new process, which knows only its instance id."""
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] | None = None
        self.waits_for: str | None = None
        self.ticket: AnyTicket | None = None
        self.is_fenced = False

    def step(self) -> None:
        if self.is_fenced:
            return
        if self.ticket is not None:
            self._look()
        elif self.waits_for == "sync":
            self._sync()
        elif self.waits_for == "nothing":
            self.ticket = self.driver.heartbeat(
                self.member_id, instance=self.instance, generation=self.generation
            )
        else:
            self._join()

    def _join(self) -> None:
        self.waits_for = "join"
        self.ticket = self.driver.join(self.member_id, instance=self.instance, protocols=self.protocols)

    def _sync(self) -> None:
        assignments = {}
        if self.leads is not None:
            owners = sorted(self.leads)
            assignments = {
                owner: bytes(PARTITIONS[number :: len(owners)]) for number, owner in enumerate(owners)
            }
        self.ticket = self.driver.sync(
            self.member_id, assignments, instance=self.instance, generation=self.generation
        )

    def _look(self) -> None:
        """Handle the answer, if there is one."""
        assert self.ticket is not None
        if self.ticket not in self.driver.answers:
            if self.ticket not in self.driver.open:
                self.ticket = None  # lost with the coordinator
            return
        answer: Any = self.driver.answers[self.ticket]
        self.ticket = None
        if answer.error == ErrorCode.NONE:
            self._succeeded(answer)
        elif answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        elif answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            # A new coordinator knows the chosen protocol, and not the other protocols of a member.
            self.protocols, self.waits_for = PROTOCOLS[1], None
        else:
            assert answer.error in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.REBALANCE_IN_PROGRESS,
            ), answer
            if answer.error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.waits_for = None

    def _succeeded(self, answer: Any) -> None:
        if self.waits_for == "join":
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self.leads = None
            if answer.leader == answer.member_id:
                self.leads = [each.member_id for each in answer.members]
            self.waits_for = "sync"
        elif self.waits_for == "sync":
            self.world.synced(self, answer)
            self.waits_for = "nothing"

    def change(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """It subscribes to other topics, and joins again."""
        self.protocols = protocols
        if self.ticket is None:
            self.waits_for = None

    def abandon(self) -> None:
        """Its connection breaks. It repeats the request over another one."""
        self.ticket = None
        if self.waits_for == "nothing":
            self.waits_for = None

    def leave(self) -> None:
        if self.member_id:
            self.driver.leave(self.member_id, instance=self.instance)
        self.start()


class World:
    def __init__(self, initial_delay_s: float) -> None:
        self.driver = Driver(initial_delay_s=initial_delay_s)
        self.clients = [
            Client(self.driver, self, f"i{number}" if number >= 3 else None) for number in range(5)
        ]
        #: (generation, partition) -> the name of the member that was told that it owns the partition.
        self.owners: dict[tuple[int, int], str] = {}
        #: The last generation of the present coordinator. A new coordinator begins with that of the log.
        self.generation = 0

    # -- what must hold -------------------------------------------------------------------------------------

    def synced(self, client: Client, answer: Any) -> None:
        name = client.instance or client.member_id
        for partition in answer.assignment:
            owner = self.owners.setdefault((client.generation, partition), name)
            assert owner == name, f"two owners of {partition} in generation {client.generation}"

    def check(self) -> None:
        group = self.driver.group
        members = {member.member_id: member for member in group.members}
        assert self.driver.open == {*group._joins.values(), *group._syncs.values()}, "a ticket got lost"
        assert not (group._joins and group.state is not PREPARING)
        assert not (group._syncs and group.state is not COMPLETING)
        assert {*group._joins, *group._syncs, *group._unsynced} <= set(members)
        assert not group._pending & set(members)
        assert (group.state is EMPTY) == (not members)
        for member_id, member in members.items():
            is_parked = member_id in group._joins or member_id in group._syncs
            assert (member_id in group._sessions) == (
                not is_parked or (member.is_new and group.state is PREPARING)
            )
        if members:
            assert group.members.support_one_of(((group.members.choose_protocol(), b""),))
        assert group.generation_id >= self.generation
        self.generation = group.generation_id
        stored = [record.value.generation for record in self.driver.log]  # type: ignore[union-attr]
        assert stored == sorted(stored), "generations in the log never fall"

    # -- what happens ---------------------------------------------------------------------------------------

    def happen(self, rng: random.Random) -> None:
        """One random event. Mostly a client takes a step."""
        client = rng.choice(self.clients)
        kind = rng.choices(["step", "time", "long time", *RARE], [40, 10, 1, *[1] * len(RARE)])[0]
        if kind == "step":
            client.step()
        elif kind == "time":
            self.driver.pass_time(rng.uniform(0, SESSION_S / 10))
        elif kind == "long time":
            self.driver.pass_time(rng.uniform(0, 2 * REBALANCE_S))
        elif kind == "change":
            client.change(rng.choice(PROTOCOLS))
        elif kind == "abandon":
            client.abandon()
        elif kind == "crash":
            client.start()
        elif kind == "leave":
            client.leave()
        else:
            self.fail_over()
        self.check()

    def fail_over(self) -> None:
        self.driver.fail_over()
        self.generation = self.driver.group.generation_id

    def heal(self) -> None:
        """All clients follow the protocol, and dead ones are removed."""
        end = self.driver.now + HEALING_S
        while self.driver.now < end:
            for client in self.clients * 3:
                if client.is_fenced:
                    client.start()  # by the answer to a request that it had given up
                client.step()
                self.check()
            self.driver.pass_time(SESSION_S / 2)
            self.check()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), initial_delay_s=st.sampled_from([MIN_INITIAL_DELAY_S, 3.0]))
def test_random_lives_have_one_owner_per_partition_lose_no_ticket_and_heal(
    seed: int, initial_delay_s: float
) -> None:
    rng = random.Random(seed)
    world = World(initial_delay_s)
    for _ in range(400):
        world.happen(rng)
    world.heal()
    group = world.driver.group
    assert group.state is STABLE
    assert {member.member_id for member in group.members} == {client.member_id for client in world.clients}
    owned = [partition for member in group.members for partition in member.assignment]
    assert sorted(owned) == list(PARTITIONS)
    for client in world.clients:
        client.leave()
    assert group.state is EMPTY
    assert group.next_deadline() is None


def _any_request(rng: random.Random, driver: Driver, ids: list[str]) -> None:
    """Any request of anybody, with member ids and instance ids that need not belong to the sender."""
    member_id = rng.choice(ids)
    instance = rng.choice([None, None, "a", "b"])
    generation = driver.group.generation_id + rng.choice([0, 0, 0, 1, -1])
    kind = rng.choice(["join", "join", "join", "sync", "sync", "heartbeat", "leave", "commit"])
    if kind == "join":
        ticket = driver.join(
            member_id,
            instance=instance,
            protocols=rng.choice([*PROTOCOLS, PROTOCOLS[0] * 2, (("c", b""),), ()]),
            protocol_type=rng.choice(["consumer"] * 8 + ["connect", ""]),
            session_s=rng.choice([SESSION_S, 1800.0]),
            rebalance_s=rng.choice([0.0, REBALANCE_S]),
            version=rng.choice([3, 8, 9]),
        )
        ids.append(getattr(driver.answers.get(ticket), "member_id", ""))
    elif kind == "sync":
        assignments = {rng.choice(ids): b"x" for _ in range(3)}
        driver.sync(member_id, assignments, instance=instance, generation=generation)
    elif kind == "heartbeat":
        driver.heartbeat(member_id, instance=instance, generation=generation)
    elif kind == "leave":
        driver.leave(member_id, rng.choice(ids), instance=instance)
    else:
        driver.commit(member_id, generation)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_request_breaks_a_group(seed: int) -> None:
    rng = random.Random(seed)
    world = World(3.0)
    ids = ["", "", "nobody"]
    for _ in range(300):
        what = rng.random()
        if what < 0.9:
            _any_request(rng, world.driver, ids)
            ids.extend(each.member_id for each in world.driver.group.members if each.member_id not in ids)
        elif what < 0.99:
            world.driver.pass_time(rng.choice([0.5, SESSION_S / 2, REBALANCE_S]))
        else:
            world.fail_over()
        world.check()
    world.driver.pass_time(2 * 1800.0 + REBALANCE_S)
    assert world.driver.group.state is EMPTY
    assert not world.driver.open
