"""What a ping says and cannot be true, however late it comes: see `raft.plausibility`, which is the same for groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.plausibility import Refusal
from raft.types import MAX_TERM

if TYPE_CHECKING:
    from raft.liveness_peer import Peer
    from raft.liveness_types import BootId, Ping

#: Groups that a node lists. Each is kept in memory.
MAX_LISTED = 1_000_000


def ping_refusal(
    ping: Ping, peer: Peer | None, boot_id: BootId, number: int, list_version: int
) -> Refusal | None:
    """Why this ping is refused. None: it may be true.

    `peer`: what is known of its sender. `boot_id`, `number` and `list_version` are this node's own: of its process, its
    last ping, and the list of its leaderships. The terms that it names are checked where they meet their groups.
    """
    if ping.number < 1 or ping.list_version < 1 or not 0 <= ping.base_version <= ping.list_version:
        return Refusal(
            f"ping {ping.number} with a list of version {ping.list_version} since {ping.base_version}", False
        )
    if ping.echo_number < 0 or ping.applied_version < 0:
        return Refusal(f"an echo of ping {ping.echo_number} and version {ping.applied_version}", False)
    if any(not 0 <= led.term <= MAX_TERM or led.configuration_index < -1 for led in ping.led):
        return Refusal("a leadership of a negative term or configuration", False)
    if len(ping.led) + (0 if peer is None else len(peer.led)) > MAX_LISTED:
        return Refusal(f"more than {MAX_LISTED} groups", False)
    if ping.echo_boot_id == boot_id and (ping.echo_number > number or ping.applied_version > list_version):
        return Refusal(
            f"an echo of ping {ping.echo_number} and version {ping.applied_version}, "
            f"where {number} and {list_version} are the last ones",
            True,
        )
    return None
