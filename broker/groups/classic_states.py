"""The states of a group of the classic protocol, and what each event does in each of them.

A cell holds the answer, and the next state if it changes: `ok, C` leads to CompletingRebalance. States are named by
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
| join of the last missing member     | -          | ok, C              | -                   | -           |
| join of a returning static member   | parked, P  | parked             | parked, P           | ok          |
| the same, and the protocol changes  | parked, P  | parked             | parked, P           | parked, P   |
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
| commit from outside                 | ok         | unknown            | unknown             | unknown     |
| one session expires                 | -          | ok                 | ok, P               | ok, P       |
| all sessions expire                 | -          | ok, E              | ok, E               | ok, E       |
| the phase times out                 | -          | ok, C              | ok, P               | ok, P       |

`id first` is MEMBER_ID_REQUIRED, `unknown` UNKNOWN_MEMBER_ID, `protocol` INCONSISTENT_GROUP_PROTOCOL, `rebalancing`
REBALANCE_IN_PROGRESS, `generation` ILLEGAL_GENERATION, `fenced` FENCED_INSTANCE_ID. They are what Apache Kafka 4.3
answers. `tests/broker/groups/test_classic_states.py` reads this table.
"""

from __future__ import annotations

from enum import StrEnum


class ClassicState(StrEnum):
    """The values are the names that DescribeGroups answers. It calls a group that does not exist "Dead"."""

    EMPTY = "Empty"
    """No members. The group may have committed offsets."""
    PREPARING = "PreparingRebalance"
    """Members are joining. The group waits for everybody who was a member before."""
    COMPLETING = "CompletingRebalance"
    """The generation has begun, and its leader computes the assignment."""
    STABLE = "Stable"
    """The assignment is in the log."""
