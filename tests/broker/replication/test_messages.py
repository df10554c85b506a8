"""What peers say of a replica that is not open yet."""

from __future__ import annotations

import pytest

from tests.broker.world import empty, running


def test_a_follower_that_was_started_again_catches_up_as_soon_as_its_partitions_are_open() -> None:
    """The leader speaks to it as soon as there is a link, and then not for a whole resend timeout (2 s)."""
    with running() as world:
        world.create_topic("t")
        leader = world.leader("t")
        follower = leader % 3 + 1
        world.produce("t", b"before")
        world.kill(follower)
        world.produce("t", b"while it was away")
        world.start(follower)
        world.wait_ready(follower)
        end_offset = world.replica(leader, "t").log.end_offset
        world.wait(lambda: world.replica(follower, "t").log.end_offset == end_offset, limit_s=0.5)


@pytest.mark.parametrize("seed", range(12))
def test_nodes_that_start_one_after_the_other_are_ready_at_once(seed: int) -> None:
    """Links come up one by one, so answers get lost: of a follower whose own link is not there yet, and of a node that
    has not joined when the leader first speaks. Nobody waits for the leader's resend timeout (2 s)."""
    with empty(seed=seed) as world:
        for node_id in (3, 2, 1):
            world.start(node_id)
            until = world.loop.time() + 0.03 * seed
            world.wait(lambda until=until: world.loop.time() >= until)  # type: ignore[misc]
        world.wait_ready()
        assert world.loop.time() - until < 1.0
