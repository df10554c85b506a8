"""One consensus group as a value: facts in, orders out.

Raft (Ongaro and Ousterhout 2014; Ongaro's thesis 2014) with pre-vote, CheckQuorum, leadership transfer,
learners and membership changes of one server, fitted to replication.md: entries are counted, only lineage
rows are known by value, and who is alive is judged per pair of nodes by `raft.liveness`, not here.

`Group` has no thread, clock, socket or disk. Every method is a fact and returns an `Output` of orders; time
comes as `now` (seconds, monotonic), randomness as a `random.Random`. The parts, each in its module, lowest
first:

    state      fields, invariants, stepping down          election   pre-vote, vote, winning
    sending    ranges, lingering, probing, installs       following  receiving, acknowledging, install
    leading    acknowledgements, commit, membership, hand-over
"""

from __future__ import annotations

from raft.following import Following


class Group(Following):
    """See the module. A broken invariant is an AssertionError: stop the node, do not go on."""

    __slots__ = ()
