"""What transactions promise: all of one or nothing of it, offsets included, and nobody reads what is not committed.

Kafka allows the records of two transactions to interleave in a partition in any way, so cycles of writes alone (G0) are
legitimate. A reader inside a transaction sees committed records only, so of two transactions at most one can have read
what the other one wrote (G1c).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.history.evidence import Evidence
from tests.history.findings import Finding, Kind
from tests.history.operations import Place, Send, Transaction

#: (group, topic, partition)
GroupPlace = tuple[str, str, int]


class _Range(NamedTuple):
    """Records of one partition that a transaction has consumed, whatever became of it."""

    start: int
    end: int
    """Behind the last."""
    position: int
    """The operation that tells it."""
    name: str
    """Of the transaction."""


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
    ranges: dict[str, dict[GroupPlace, list[_Range]]] = {"ok": {}, "failed": {}, "unknown": {}}
    for name, (position, ended) in evidence.transactions.items():
        of_outcome = ranges[_outcome(evidence, ended, transactions[name])]
        for group_place, start, end in ended.offsets:
            of_outcome.setdefault(group_place, []).append(_Range(start, end, position, name))
    consumed, aborted, unknown = (
        {group_place: sorted(found) for group_place, found in ranges[outcome].items()}
        for outcome in ("ok", "failed", "unknown")
    )
    for group_place, (offset, position) in evidence.committed.items():
        possible = [*consumed.get(group_place, ()), *unknown.get(group_place, ())]
        for each in aborted.get(group_place, ()):
            if each.end == offset and all(offset != other.end for other in possible):
                what = f"group {group_place[0]!r} has the offset of an aborted transaction"
                yield Finding(Kind.ABORTED_OFFSETS, group_place[1:], offset, what, (each.position, position))
                break
    for group_place, found in consumed.items():
        yield from _consumed_twice(group_place, found)
        yield from _unconsumed(
            evidence, group_place, found, unknown.get(group_place, []), aborted.get(group_place, [])
        )
        last = max(found, key=lambda each: each.end)
        committed = evidence.committed.get(group_place)
        if committed is not None and (committed[0] is None or committed[0] < last.end):
            group, topic, partition = group_place
            what = f"group {group!r} has {committed[0]}, and transaction {last.name!r} committed {last.end}"
            yield Finding(
                Kind.LOST_OFFSETS, (topic, partition), last.end, what, (last.position, committed[1])
            )


def _outcome(evidence: Evidence, ended: Transaction, known: _Transaction) -> str:
    """What became of a transaction. One of unknown outcome is committed if a record of it was read, and aborted if a
    record of it would have been read."""
    if ended.outcome != "unknown":
        return ended.outcome
    if known.visible:
        return "ok"
    is_missing = any(
        send.partition is not None
        and not evidence.is_compacted(send.topic)
        and evidence.is_read_to_the_end((send.topic, send.partition))
        for _, send in known.sends
    )
    return "failed" if is_missing else "unknown"


def _consumed_twice(group_place: GroupPlace, consumed: list[_Range]) -> Iterator[Finding]:
    """`consumed`: sorted."""
    group, topic, partition = group_place
    reached = consumed[0]
    for each in consumed[1:]:
        if each.start < reached.end:
            what = f"group {group!r}: transactions {reached.name!r} and {each.name!r} have both consumed it"
            proof = (reached.position, each.position)
            yield Finding(Kind.CONSUMED_TWICE, (topic, partition), each.start, what, proof)
        if each.end > reached.end:
            reached = each


def _unconsumed(
    evidence: Evidence,
    group_place: GroupPlace,
    consumed: list[_Range],
    unknown: list[_Range],
    aborted: list[_Range],
) -> Iterator[Finding]:
    """Between the first record that a group has been given, if only for a transaction that was aborted, and the last
    one that it has consumed for certain."""
    group, topic, partition = group_place
    place: Place = (topic, partition)
    if evidence.is_compacted(topic) or place not in evidence.partitions:
        return
    reads = evidence.partitions[place].reads
    offsets = sorted(reads)
    reached, last = min(each.start for each in (*consumed, *unknown, *aborted)), max(x.end for x in consumed)
    for each in sorted((*consumed, *unknown)):
        index = bisect_left(offsets, reached)
        if index < len(offsets) and offsets[index] < min(each.start, last):
            offset = offsets[index]
            what = f"group {group!r} has gone on with {each.start}, in transaction {each.name!r}"
            yield Finding(Kind.UNCONSUMED, place, offset, what, (reads[offset].position, each.position))
        reached = max(reached, each.end)
