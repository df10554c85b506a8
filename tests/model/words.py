"""A counterexample in plain words."""

from __future__ import annotations

from tests.model.checker import Trace
from tests.model.properties import name_of
from tests.model.state import GUARD_INDEX, State, Step

#: By action: `{node}` is who does it, `{other}` with whom.
_SENTENCES = {
    "elect": "{node} is elected",
    "clean": "{node} is cleaned",
    "flush": "the pass of {node} is durable",
    "drop": "{node} drops the guard",
    "report": "{node} reports to {other}",
    "send_late_report": "{node} reports to {other}, which does not arrive yet",
    "late_report_arrives": "the late report of {other} arrives at {node}",
    "rise": "the bound rises at {node}",
    "tell": "{node} tells {other} the bound",
    "lose_bounds": "{node} tells {other} the bound, which is lost",
    "bounds_of_another_topic_arrive": "{node} hears bounds of an earlier topic of this name",
    "remove": "{node} appends a row that removes {other}",
    "remove_gone": "{node} appends a row that removes the member that {other} was",
    "add": "{node} appends a row that adds {other}",
    "promote": "{node} appends a row by which {other} votes",
    "discard": "{node} discards its log, as {other} tells it",
    "restart": "{node} starts again",
    "cut_power": "{node} loses power",
    "damage": "{node} loses its log",
}


def tell_story(start: State, trace: Trace) -> str:
    """One clause for each step."""
    if not trace:
        return "from the start, whatever happens"
    clauses, before = [], start
    for step, after in trace:
        clauses.append(_clause(before, step, after))
        before = after
    return "; ".join(clauses)


def _clause(before: State, step: Step, after: State) -> str:
    node = name_of(step.node)
    other = "" if step.other is None else name_of(step.other)
    if step.action == "hear":
        return f"{node} hears {other}{_copied(before, step, after)}"
    return _SENTENCES[step.action].format(node=node, other=other)


def _copied(before: State, step: Step, after: State) -> str:
    was, now = before.replicas[step.node], after.replicas[step.node]
    if was.log == now.log:
        return ""
    if len(now.log) > GUARD_INDEX + 1:
        return " and copies rows"
    if len(now.log) == GUARD_INDEX + 1:
        return " and copies the guard" if now.holds_guard else " and copies a gap in place of the guard"
    return " and copies the old record" if now.holds_old else " and copies a gap in place of the old record"
