"""Where replicas should be: plans that move as little as possible. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Replicas = Mapping[tuple[str, int], Sequence[int]]
Plan = dict[tuple[str, int], list[int]]


class PlanError(Exception):
    """There are too few brokers for what is wanted; the text says for what."""


def spread(current: Replicas, brokers: Sequence[int], replication_factor: int | None = None) -> Plan:
    """All replicas on these brokers, as evenly as can be; so the preferred leaders. What may stay stays.

    `replication_factor`: None keeps each partition's own.
    """
    plan: Plan = {}
    load = Counter(dict.fromkeys(brokers, 0))
    for name, replicas in current.items():
        wanted = replication_factor or len(replicas)
        if wanted > len(brokers):
            raise PlanError(
                f"{name[0]}-{name[1]} is to have {wanted} replicas, and there are {len(brokers)} brokers for them"
            )
        plan[name] = [node_id for node_id in replicas if node_id in load][:wanted]
        load.update(plan[name])
    for name, replicas in plan.items():
        for _ in range((replication_factor or len(current[name])) - len(replicas)):
            heir = min((node_id for node_id in brokers if node_id not in replicas), key=lambda x: load[x])
            replicas.append(heir)
            load[heir] += 1
    _even_out(plan, load)
    _even_out_leaders(plan, brokers)
    return plan


def without(current: Replicas, leaving: int, others: Sequence[int]) -> Plan:
    """The partitions of one broker, with another in its place: the least loaded that does not have it yet."""
    load = Counter(node_id for replicas in current.values() for node_id in replicas)
    plan: Plan = {}
    for name, replicas in current.items():
        if leaving not in replicas:
            continue
        free = [node_id for node_id in others if node_id not in replicas]
        if not free:
            raise PlanError(
                f"{name[0]}-{name[1]} has {len(replicas)} replicas, and without broker {leaving} there are "
                f"{len(others)} brokers for them"
            )
        heir = min(free, key=lambda node_id: load[node_id])
        load[heir] += 1
        plan[name] = [heir if node_id == leaving else node_id for node_id in replicas]
    return plan


def _even_out(plan: Plan, load: Counter[int]) -> None:
    """Move one replica after the other from the fullest broker to the emptiest that can take it."""
    for _ in range(sum(load.values())):
        fullest, emptiest = max(load, key=lambda x: load[x]), min(load, key=lambda x: load[x])
        movable = next(
            (replicas for replicas in plan.values() if fullest in replicas and emptiest not in replicas), None
        )
        if load[fullest] - load[emptiest] <= 1 or movable is None:
            return
        movable[movable.index(fullest)] = emptiest
        load[fullest] -= 1
        load[emptiest] += 1


def _even_out_leaders(plan: Plan, brokers: Sequence[int]) -> None:
    """Another replica of the same partition comes first where that evens the number of preferred leaders out."""
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in plan.values())
    for replicas in plan.values():
        best = min(replicas, key=lambda node_id: leads[node_id])
        if leads[replicas[0]] - leads[best] > 1:
            leads[replicas[0]] -= 1
            leads[best] += 1
            position = replicas.index(best)
            replicas[0], replicas[position] = best, replicas[0]
