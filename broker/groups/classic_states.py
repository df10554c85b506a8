"""The states of a group of the classic protocol, and what each event does in each of them.

A cell is the answer, and the next state where it is another: `ok, C` leads to CompletingRebalance. States are named by
their first letter. `parked`: the answer comes later. `-`: cannot happen.

| event                               | Empty      | PreparingRebalance | CompletingRebalance | Stable      |
|-------------------------------------|------------|--------------------|---------------------|-------------|
| join without an id                  | id first   | id first           | id first            | id first    |
| join with a pending id              | parked, P  | parked             | parked, P           | parked, P   |
| join with an unknown id             | unknown    | unknown            | unknown             | unknown     |
| join with another protocol type     | parked, P  | protocol           | protocol            | protocol    |
| join of a follower, unchanged       | unknown    | parked             | ok                  | ok          |
| join of the leader, unchanged       | unknown    | parked             | ok                  | parked, P   |
| join of a follower, changed         | unknown    | parked             | parked, P           | parked, P   |
| join of the last that was missing   | -          | ok, C              | -                   | -           |
| join of a static member's successor | parked, P  | parked             | parked, P           | ok          |
| the same, and the vote changes      | parked, P  | parked             | parked, P           | parked, P   |
| sync of a follower                  | unknown    | rebalancing        | parked              | ok          |
| sync of the leader                  | unknown    | rebalancing        | ok, S               | ok          |
| sync of another generation          | unknown    | generation         | generation          | generation  |
| sync of another protocol            | unknown    | protocol           | protocol            | protocol    |
| heartbeat                           | unknown    | rebalancing        | ok                  | ok          |
| heartbeat of another generation     | unknown    | generation         | generation          | generation  |
| heartbeat of a fenced instance      | unknown    | fenced             | fenced              | fenced      |
| leave of one                        | unknown    | ok                 | ok, P               | ok, P       |
| leave of all                        | unknown    | ok, E              | ok, E               | ok, E       |
| commit of a member                  | unknown    | ok                 | rebalancing         | ok          |
| commit of nobody                    | ok         | unknown            | unknown             | unknown     |
| one session expires                 | -          | ok                 | ok, P               | ok, P       |
| all sessions expire                 | -          | ok, E              | ok, E               | ok, E       |
| somebody is waited for too long     | -          | ok, C              | ok, P               | ok, P       |

`id first` is MEMBER_ID_REQUIRED, `unknown` UNKNOWN_MEMBER_ID, `protocol` INCONSISTENT_GROUP_PROTOCOL, `rebalancing`
REBALANCE_IN_PROGRESS, `generation` ILLEGAL_GENERATION, `fenced` FENCED_INSTANCE_ID. They are what Apache Kafka 4.3
answers. `tests/broker/groups/test_classic_states.py` reads this table.
"""

from __future__ import annotations

from enum import StrEnum


class ClassicState(StrEnum):
    """By the names that DescribeGroups shows; it calls a group that does not exist "Dead"."""

    EMPTY = "Empty"
    """No members. It may hold offsets."""
    PREPARING = "PreparingRebalance"
    """Members are joining; who was a member before is waited for."""
    COMPLETING = "CompletingRebalance"
    """The generation is made, and its leader works out the assignment."""
    STABLE = "Stable"
    """The assignment is in the log."""
