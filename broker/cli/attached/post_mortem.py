"""A cluster in a page of text, for whoever reads why a test failed: nodes, leaders, offsets, the ends of logs."""

from __future__ import annotations

from collections.abc import Iterator

from broker.cli.attached.nodes import AttachedNodes
from broker.cli.attached.topics import offsets_of
from broker.cli.cluster_state import ClusterState, Partition
from broker.cli.local_cluster import LocalClusterError
from broker.cli.root import CommandError
from broker.metadata.ids import INTERNAL_TOPICS

_MAX_PARTITIONS = 20


def post_mortem(nodes: AttachedNodes, log_lines: int) -> str:
    """`log_lines`: so many of each node; none if it is 0."""
    logs = _logs(nodes, log_lines) if log_lines else ()
    return "\n".join([*_head(nodes), *_partitions(nodes), *logs])


def _head(nodes: AttachedNodes) -> Iterator[str]:
    states = nodes.states()
    for node in nodes.local.nodes:
        yield f"node {node.node_id}  {node.address}  {states[node.node_id]}"


def _partitions(nodes: AttachedNodes) -> Iterator[str]:
    try:
        state = nodes.describe()
    except (CommandError, LocalClusterError) as error:
        yield str(error)
        return
    yield f"controller: {'none' if state.controller is None else f'node {state.controller}'}"
    shown = _of_interest(state)
    offsets = offsets_of(state, shown[:_MAX_PARTITIONS])
    for name in shown[:_MAX_PARTITIONS]:
        partition = state.partitions[name]
        span = "{} to {}".format(*offsets[name]) if name in offsets else "unknown"
        leader = "none" if partition.leader is None else f"node {partition.leader}"
        yield (
            f"{name[0]}-{name[1]}  leader {leader}  replicas {_list(partition.replicas)}"
            f"  in sync {_list(sorted(partition.in_sync))}  offsets {span}"
        )
    if len(shown) > _MAX_PARTITIONS:
        yield f"and {len(shown) - _MAX_PARTITIONS} more partitions"


def _of_interest(state: ClusterState) -> list[Partition]:
    """All of the user's topics. Of internal ones those that are not well. Where something is wrong comes first."""
    troubled = {*state.leaderless, *state.under_replicated}
    shown = [name for name in state.partitions if name in troubled or name[0] not in INTERNAL_TOPICS]
    return sorted(shown, key=lambda name: (name not in troubled, name))


def _logs(nodes: AttachedNodes, lines: int) -> Iterator[str]:
    for node in nodes.local.nodes:
        yield f"-- node {node.node_id}, the end of {node.log}"
        yield node.log_tail(lines)


def _list(node_ids: list[int]) -> str:
    return ",".join(map(str, node_ids)) or "none"
