"""What peers say of a replica that is not open yet."""

from __future__ import annotations

from tests.broker.world import running


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
