"""Who is a member, whose word counts, and whose log is a legitimate copy: what a replica concludes from its own log
(broker/replication/watermarks, raft/rows.py)."""

from __future__ import annotations

from tests.model.rules import Rules
from tests.model.state import FOUNDED, Configuration, Entry, Kind, Member, Replica, Report, State


def configurations(founding: Configuration, log: tuple[Entry, ...]) -> list[Configuration]:
    """The founding one first."""
    return [founding] + [entry.configuration for entry in log if entry.configuration is not None]


def newest(founding: Configuration, log: tuple[Entry, ...]) -> Configuration:
    """A configuration holds from the moment it is appended (Raft)."""
    for entry in reversed(log):
        if entry.configuration is not None:
            return entry.configuration
    return founding


def committed(rules: Rules, founding: Configuration, replica: Replica) -> Configuration:
    """The newest configuration that is surely committed. A change is appended only when the one before is committed,
    so all but the newest are, whatever a restart has lost."""
    known = configurations(founding, replica.log[: replica.commit_end])
    everything = configurations(founding, replica.log)
    if rules.older_rows_are_committed and len(known) < len(everything):
        return everything[-2]
    return known[-1]


def counted(rules: Rules, founding: Configuration, replica: Replica) -> list[Member]:
    """L2: who counts for the bound. A removal counts when it is committed, an addition when it is appended."""
    now, before = newest(founding, replica.log), committed(rules, founding, replica)
    if not rules.addition_when_appended:
        return list(before.members)
    if not rules.removal_when_committed:
        return list(now.members)
    return list(dict.fromkeys(now.members + before.members))


def own_report(rules: Rules, replica: Replica) -> Report:
    """F3: what is not durable is not told."""
    is_clean = replica.is_clean or not (replica.is_flushed or rules.reported_when_durable)
    return Report(is_clean, replica.begun_in)


def report_of(rules: Rules, state: State, leader: int, member: Member) -> Report | None:
    """What the leader knows of a member. L3: None if it has not reported."""
    replica = state.replicas[leader]
    if member == state.member(leader):
        return own_report(rules, replica)
    for each, report in replica.reports:
        if each == member:
            return report
    return None if rules.silent_member_blocks else own_report(rules, replica)


def is_clean(
    rules: Rules, founding: Configuration, log: tuple[Entry, ...], member: Member, report: Report
) -> bool | None:
    """Whether a leader with this log takes a member for clean above the guard. None: its log is from before it was
    added (F5), so nothing is known of it.

    As `membership_seed.py`: the row that names the member holds the bound of then (L7). A log that was begun in an
    older term than that row is another one, whatever the row knows."""
    named: Entry | None = None
    last_end_term = FOUNDED - 1
    founded = Entry(0, Kind.CONFIGURATION, founding)
    for entry in (founded, *log):
        if entry.configuration is None:
            continue
        if member not in entry.configuration.members:
            if named is not None:
                last_end_term = entry.term
            named = None
        elif named is None:
            named = entry
    if named is None or named is founded:
        return report.is_clean
    is_begun_here = report.begun_in >= named.term and report.begun_in > last_end_term
    is_looked_at = rules.begun_under_its_row and (named.seed or rules.begun_without_bound)
    if is_looked_at and not is_begun_here:
        return None
    return named.seed or report.is_clean


def is_legitimate(
    rules: Rules, founding: Configuration, state: State, leader: int, member: Member
) -> bool | None:
    """L6: whether a member's log is a copy as others have it. None: it has not reported."""
    replica = state.replicas[leader]
    report = report_of(rules, state, leader, member)
    if report is None:
        return None
    clean = is_clean(rules, founding, replica.log, member, report)
    return clean is not None and (clean or not replica.knows_bound)
