"""Reassignment plans that move as few replicas as possible. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from broker.cli.output import counted

Replicas = Mapping[tuple[str, int], Sequence[int]]
Plan = dict[tuple[str, int], list[int]]


class PlanError(Exception):
    """There are too few brokers for the replicas. The message names a partition."""


def plan_even_spread(
    current: Replicas, brokers: Sequence[int], replication_factor: int | None = None
) -> Plan:
    """Spread all replicas over these brokers, as evenly as possible, and so the preferred leaders. A replica moves only
    if it has to.

    `replication_factor`: None keeps that of each partition.
    """
    plan: Plan = {}
    load = Counter(dict.fromkeys(brokers, 0))
    for name, replicas in current.items():
        wanted = replication_factor or len(replicas)
        if wanted > len(brokers):
            raise PlanError(
                f"{name[0]}-{name[1]} is to have {counted(wanted, 'replica')}, and there {_are(brokers)} for them"
            )
        plan[name] = [node_id for node_id in replicas if node_id in load][:wanted]
        load.update(plan[name])
    for name, replicas in plan.items():
        for _ in range((replication_factor or len(current[name])) - len(replicas)):
            added = min((node_id for node_id in brokers if node_id not in replicas), key=lambda x: load[x])
            replicas.append(added)
            load[added] += 1
    _balance_replicas(plan, load)
    _balance_leaders(plan, brokers)
    return plan


def plan_removal(current: Replicas, leaving: int, others: Sequence[int]) -> Plan:
    """The partitions of one broker, each with another broker in its place: the least loaded that can take it."""
    load = Counter(node_id for replicas in current.values() for node_id in replicas)
    plan: Plan = {}
    for name, replicas in current.items():
        if leaving not in replicas:
            continue
        free = [node_id for node_id in others if node_id not in replicas]
        if not free:
            raise PlanError(
                f"{name[0]}-{name[1]} has {counted(len(replicas), 'replica')}, and without broker {leaving} there "
                f"{_are(others)} for them"
            )
        replacement = min(free, key=lambda node_id: load[node_id])
        load[replacement] += 1
        plan[name] = [replacement if node_id == leaving else node_id for node_id in replicas]
    return plan


def _are(brokers: Sequence[int]) -> str:
    return f"{'is' if len(brokers) == 1 else 'are'} {counted(len(brokers), 'broker')}"


def _balance_replicas(plan: Plan, load: Counter[int]) -> None:
    """Move replicas, one at a time, from the broker with the most to the one with the fewest."""
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


def _balance_leaders(plan: Plan, brokers: Sequence[int]) -> None:
    """Put another replica of a partition first if that makes the numbers of preferred leaders more even."""
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in plan.values())
    for replicas in plan.values():
        best = min(replicas, key=lambda node_id: leads[node_id])
        if leads[replicas[0]] - leads[best] > 1:
            leads[replicas[0]] -= 1
            leads[best] += 1
            position = replicas.index(best)
            replicas[0], replicas[position] = best, replicas[0]
