"""What transactions promise: all of one or nothing of it, offsets included, and nobody reads what is not committed.

Kafka allows the records of two transactions to interleave in a partition in any way, so cycles of writes alone (G0) are
legitimate. A reader inside a transaction sees committed records only, so of two transactions at most one can have read
what the other one wrote (G1c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.history.evidence import Evidence
from tests.history.findings import Finding, Kind
from tests.history.operations import Place, Send

#: (group, topic, partition)
GroupPlace = tuple[str, str, int]


@dataclass(slots=True)
class _Transaction:
    """What is known of one transaction."""

    sends: list[tuple[int, Send]] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)
    """Operations that read a record of it."""
    reads_from: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Other transaction -> operations that show that this one has read a record of it."""


def check_transactions(evidence: Evidence) -> Iterator[Finding]:
    transactions = _collect(evidence)
    yield from _partly_visible(evidence, transactions)
    yield from _cycles(transactions)
    yield from _offsets(evidence, transactions)


def _collect(evidence: Evidence) -> dict[str, _Transaction]:
    transactions = {name: _Transaction() for name in evidence.transactions}
    read_by = {
        (place[0], seen.value): seen.position
        for place, partition in evidence.partitions.items()
        for seen in partition.reads.values()
    }
    for topic, sends in evidence.sends.items():
        for value, (position, send) in sends.items():
            if send.transaction is None:
                continue
            transaction = transactions.setdefault(send.transaction, _Transaction())
            transaction.sends.append((position, send))
            if (topic, value) in read_by:
                transaction.visible.append(read_by[topic, value])
    for reader, topic, value, position in evidence.transactional_reads:
        sent = evidence.sends.get(topic, {}).get(value)
        if sent is not None and sent[1].transaction not in (None, reader):
            assert sent[1].transaction is not None
            transactions.setdefault(reader, _Transaction()).reads_from.setdefault(
                sent[1].transaction, (sent[0], position)
            )
    return transactions


def _partly_visible(evidence: Evidence, transactions: dict[str, _Transaction]) -> Iterator[Finding]:
    """Some record of a transaction was read, and another one was not, although somebody came past it. Where the
    transaction was acknowledged that is a lost write, which is found elsewhere. Where its outcome is unknown, neither
    half is the truth."""
    read = {
        (place[0], seen.value)
        for place, partition in evidence.partitions.items()
        for seen in partition.reads.values()
    }
    for name, transaction in transactions.items():
        if not transaction.visible:
            continue
        for position, send in transaction.sends:
            is_there = send.partition is not None and evidence.is_read_to_the_end(
                (send.topic, send.partition)
            )
            if send.outcome != "unknown" or (send.topic, send.value) in read or not is_there:
                continue
            assert send.partition is not None
            what = f"{send.value!r} of transaction {name!r} was read by nobody, and another record of it was"
            place = (send.topic, send.partition)
            yield Finding(Kind.PARTIAL_TRANSACTION, place, None, what, (position, transaction.visible[0]))
            break


def _cycles(transactions: dict[str, _Transaction]) -> Iterator[Finding]:
    """A cycle among the transactions of each strongly connected component (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    on_stack: dict[str, None] = {}
    for root, first in transactions.items():
        if root in order:
            continue
        walk = [(root, iter(first.reads_from))]
        order[root] = lowest[root] = len(order)
        on_stack[root] = None
        while walk:
            name, others = walk[-1]
            other = next(others, None)
            if other is not None:
                if other not in order:
                    order[other] = lowest[other] = len(order)
                    on_stack[other] = None
                    walk.append((other, iter(transactions[other].reads_from)))
                elif other in on_stack:
                    lowest[name] = min(lowest[name], order[other])
                continue
            walk.pop()
            if walk:
                lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[name])
            if lowest[name] == order[name]:
                members: list[str] = []
                while not members or members[-1] != name:
                    members.append(on_stack.popitem()[0])
                if len(members) > 1:
                    yield _cycle(transactions, members)


def _cycle(transactions: dict[str, _Transaction], members: list[str]) -> Finding:
    """One cycle in a component, by walking inside it until a transaction comes again."""
    inside, path = set(members), [members[0]]
    while path[-1] not in path[:-1]:
        path.append(next(other for other in transactions[path[-1]].reads_from if other in inside))
    cycle = path[path.index(path[-1]) :]
    proof: list[int] = []
    for reader, writer in pairwise(cycle):
        proof += transactions[reader].reads_from[writer]
    return Finding(Kind.CYCLE, None, None, " has read from ".join(cycle), tuple(proof))


def _offsets(evidence: Evidence, transactions: dict[str, _Transaction]) -> Iterator[Finding]:
    """Each record of an input is consumed in one committed transaction, and what these committed is what the group has
    in the end."""
    consumed: dict[GroupPlace, list[tuple[int, int, int, str]]] = {}
    possible: dict[GroupPlace, set[int]] = {}
    aborted: dict[GroupPlace, dict[int, int]] = {}
    for name, (position, ended) in evidence.transactions.items():
        is_committed = ended.outcome == "ok" or (ended.outcome == "unknown" and transactions[name].visible)
        for group_place, start, end in ended.offsets if is_committed else ():
            consumed.setdefault(group_place, []).append((start, end, position, name))
        for group_place, _, end in ended.offsets:
            if ended.outcome == "failed":
                aborted.setdefault(group_place, {})[end] = position
            else:
                possible.setdefault(group_place, set()).add(end)
    for group_place, (offset, position) in evidence.committed.items():
        ended_by = aborted.get(group_place, {}).get(-1 if offset is None else offset)
        if ended_by is not None and offset not in possible.get(group_place, ()):
            what = f"group {group_place[0]!r} has the offset of an aborted transaction"
            yield Finding(Kind.ABORTED_OFFSETS, group_place[1:], offset, what, (ended_by, position))
    for group_place, ranges in consumed.items():
        ranges.sort()
        yield from _consumed_twice(group_place, ranges)
        _, end, position, name = max(ranges, key=lambda each: each[1])
        committed = evidence.committed.get(group_place)
        if committed is not None and (committed[0] is None or committed[0] < end):
            group, topic, partition = group_place
            what = f"group {group!r} has {committed[0]}, and transaction {name!r} committed {end}"
            yield Finding(Kind.LOST_OFFSETS, (topic, partition), end, what, (position, committed[1]))


def _consumed_twice(group_place: GroupPlace, ranges: list[tuple[int, int, int, str]]) -> Iterator[Finding]:
    """`ranges`: (first offset, offset behind the last, operation, transaction), in that order."""
    group, topic, partition = group_place
    place: Place = (topic, partition)
    _, reached, reached_by, before = ranges[0]
    for start, end, position, name in ranges[1:]:
        if start < reached:
            what = f"group {group!r}: transactions {before!r} and {name!r} have both consumed it"
            yield Finding(Kind.CONSUMED_TWICE, place, start, what, (reached_by, position))
        if end > reached:
            reached, reached_by, before = end, position, name
