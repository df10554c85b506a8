"""Scripts of commands with the trace that they must give, in the manner of etcd's `rafttest`.

A script is a text file. Lines that start with `#` tell the story, `> ` starts a command, the lines after it are what
happened, up to an empty line. `VARVE_REWRITE=1 pytest tests/raft/test_scripts.py` writes the traces anew: read the
difference before you commit it.

    > cluster 3 [founded 0]      voters 1 to 3; founded in term 0, as older directories were (and the paper's figures)
    > blank 4                    a replica without a log; of a node that has one: its disk is lost
    > suspect 1                  liveness says that the leader is gone, and the campaign timer ends
    > elect 1 with 2 3           these miss their leader, 1 campaigns among them until it leads; only votes move
    > deliver [1>2]              everything under way (on that link), once; what it causes stays under way
    > drop [1>2]                 lose it
    > repeat [1>2]               deliver, and keep for another time
    > flush 1                    everything written on 1 is durable
    > stabilize [1 2]            deliver and flush, between all (these), until nothing happens
    > append 1 3 2               the leader appends batches of so many records
    > propose 1 voters 1 2 learners 3
    > heard 2 1                  2 is told by liveness that 1 leads in its term
    > power-cut 2, quorum-lost 1, commits 1, transfer 1 2, timers, link-lost 1 2, link 1 2, log-start 1 4, install 3
    > status
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raft.types import (
    FOUNDING_TERM,
    AppendRejection,
    AppendReply,
    Configuration,
    InstallSnapshotReply,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Role,
    Row,
    TimeoutNow,
    Timing,
    VoteReply,
    VoteRequest,
)
from tests.raft.cluster import Append, Cluster, Host, Packet, SendSnapshot, ViolationError, replica


def run_script(path: Path) -> str:
    """The script with the trace that it gives now."""
    script, lines = Script(), []
    skipping = False
    for line in path.read_text().splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines.extend(script.run(line[2:].split()))
            skipping = True
        elif not line or line.startswith("#"):
            lines.append(line)
            skipping = False
        elif not skipping:
            raise ValueError(f"{path}: neither story, command nor trace: {line}")
    return "\n".join(lines) + "\n"


class TracedHost(Host):
    """Tells the script what its group orders."""

    def apply(self, out: Output, append: Append | None = None) -> None:
        before = {id(packet) for packet in self.cluster.links + self.waiting}
        super().apply(out, append)
        trace = self.cluster.trace  # type: ignore[attr-defined]
        for line in self._orders(out):
            trace(f"{_name(self.self_id)} {line}")
        for packet in self.cluster.links:
            if id(packet) not in before and packet.from_ == self.self_id:
                trace(f"{_name(self.self_id)} -> {_name(packet.to)} {_describe(packet)}")
        for packet in self.waiting:
            if id(packet) not in before:
                trace(f"{_name(self.self_id)} -> {_name(packet.to)} {_describe(packet)}, after the flush")

    def _orders(self, out: Output) -> list[str]:
        group, lines = self.group, []
        if out.role_changed:
            leader = "" if group.leader is None or group.leader == self.self_id else f" {_name(group.leader)}"
            established = ", established" if group.is_established else ""
            lines.append(f"is {group.role.name}{leader}, term {group.term}{established}")
        if out.hard_state is not None and out.hard_state.voted_for is not None:
            lines.append(f"writes vote for {_name(out.hard_state.voted_for)} in term {out.hard_state.term}")
        if out.truncate_to is not None:
            lines.append(f"cuts to {out.truncate_to}")
        if out.write_from is not None:
            lines.append(f"writes [{out.write_from}, {group.end_index})")
        lines.extend(f"writes {_row(row)}" for row in out.rows)
        if out.snapshot is not None:
            lines.append(f"begins anew at offset {out.snapshot.log_start}")
        if out.watermarks is not None and out.watermarks.log_start:
            lines.append(f"takes log start {out.watermarks.log_start}")
        if out.commit_advanced:
            lines.append(f"commits {group.commit_end}")
        return lines


class TracedCluster(Cluster):
    def __init__(self, trace: Callable[[str], None], voters: int, founding_term: int) -> None:
        self.trace = trace
        timing = Timing(max_inflight_ranges=2)
        super().__init__(
            1,
            voters,
            whole_ranges=True,
            host_class=TracedHost,
            timing=timing,
            founding_term=founding_term,
        )


class Script:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cluster = TracedCluster(self.lines.append, 0, FOUNDING_TERM)

    def run(self, words: list[str]) -> list[str]:
        self.lines.clear()
        name, *arguments = words
        try:
            getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        except ProposalRefusedError as refused:
            self.lines.append(f"refused: {refused}")
        except ViolationError as violation:
            self.lines.append(f"VIOLATION: {violation}")
        return self.lines or ["nothing"]

    def host(self, node: str) -> Host:
        return self.cluster.hosts[int(node)]

    def do_cluster(self, voters: str, _founded: str = "", term: str = f"{FOUNDING_TERM}") -> None:
        self.cluster = TracedCluster(self.lines.append, int(voters), int(term))
        for host in self.cluster.hosts.values():
            host.apply(host.group.tick(0.0))
        self.do_status()

    def do_blank(self, node: str) -> None:
        known = self.cluster.hosts.get(int(node))
        incarnation = 0 if known is None else known.self_id.incarnation + 1
        host = self.cluster.add_host(replica(int(node), incarnation))
        host.apply(host.group.tick(self.cluster.now))
        self.lines.append(f"{_name(host.self_id)} is blank")

    def do_suspect(self, node: str) -> None:
        host, cluster = self.host(node), self.cluster
        host.apply(host.group.leader_suspected(cluster.now))
        cluster.now += cluster.timing.campaign_spread_s
        host.apply(host.group.tick(cluster.now))

    def do_elect(self, node: str, _with: str, *others: str) -> None:
        chosen = [int(one) for one in (node, *others)]
        for one in chosen:
            self.cluster.hosts[one].apply(self.cluster.hosts[one].group.quorum_lost(self.cluster.now))
            self.cluster.hosts[one].apply(self.cluster.hosts[one].group.leader_suspected(self.cluster.now))
        for _ in range(5):
            self.do_suspect(node)
            self._settle(chosen, (VoteRequest, VoteReply))
            if self.host(node).group.role is Role.LEADER:
                return
        raise AssertionError("not elected")

    def _settle(self, chosen: list[int], kinds: tuple[type, ...]) -> None:
        """Deliver and flush until nothing happens."""
        for _ in range(50):
            before = len(self.lines)
            moving = [
                one
                for one in self.cluster.links
                if one.from_.node_id in chosen and one.to.node_id in chosen and isinstance(one.body, kinds)
            ]
            for packet in moving:
                self.cluster.deliver(self.cluster.links.index(packet))
            self.do_flush(*(str(node) for node in chosen))
            if len(self.lines) == before and not moving:
                return
        raise AssertionError("it never ends")

    def _under_way(self, link: str | None) -> list[Packet]:
        links = self.cluster.links
        return [one for one in links if link in (None, f"{one.from_.node_id}>{one.to.node_id}")]

    def do_deliver(self, link: str | None = None) -> None:
        for packet in self._under_way(link):
            self.cluster.deliver(self.cluster.links.index(packet))

    def do_drop(self, link: str | None = None) -> None:
        for packet in self._under_way(link):
            self.cluster.links.remove(packet)
            self.lines.append(f"lost: {_name(packet.from_)} -> {_name(packet.to)} {_describe(packet)}")

    def do_repeat(self, link: str | None = None) -> None:
        for packet in self._under_way(link):
            self.cluster.deliver(self.cluster.links.index(packet), keep=True)

    def do_flush(self, *nodes: str) -> None:
        for node in nodes:
            host = self.host(node)
            host.begin_flush()
            waited = [] if host.flush is None else host.flush[4]
            for packet in waited:
                self.lines.append(f"{_name(packet.from_)} => {_name(packet.to)} {_describe(packet)}")
            host.finish_flush()

    def do_stabilize(self, *nodes: str) -> None:
        chosen = [int(node) for node in nodes] or list(self.cluster.hosts)
        self._settle(chosen, (object,))

    def do_append(self, node: str, *counts: str) -> None:
        if not self.host(node).group.can_propose:
            self.lines.append("refused: cannot append")
        self.host(node).append([int(count) for count in counts])

    def do_propose(self, node: str, *words: str) -> None:
        split = words.index("learners") if "learners" in words else len(words)
        voters, learners = words[1:split], words[split + 1 :]
        configuration = Configuration(self._ids(voters), self._ids(learners))
        host = self.host(node)
        host.apply(host.group.propose_configuration(configuration, self.cluster.now))

    def _ids(self, names: tuple[str, ...]) -> tuple[ReplicaId, ...]:
        """`4` is the node's present replica, `4.0` names its incarnation."""
        ids = []
        for name in names:
            node, _, incarnation = name.partition(".")
            present = self.cluster.hosts[int(node)].self_id
            ids.append(replica(int(node), int(incarnation)) if incarnation else present)
        return tuple(ids)

    def do_heard(self, node: str, leader: str) -> None:
        host, other = self.host(node), self.host(leader)
        host.apply(host.group.leader_heard(other.self_id, other.group.term, self.cluster.now))

    def do_seen(self, node: str, term: str) -> None:
        self.host(node).apply(self.host(node).group.term_seen(int(term), self.cluster.now))

    def do_power_cut(self, *nodes: str) -> None:
        for node in nodes:
            host = self.host(node)
            host.lose_power()
            host.apply(host.group.tick(self.cluster.now))
            self.lines.append(f"{_name(host.self_id)} restarts with [0, {host.group.end_index})")

    def do_quorum_lost(self, node: str) -> None:
        self.host(node).apply(self.host(node).group.quorum_lost(self.cluster.now))

    def do_commits(self, node: str) -> None:
        self.host(node).apply(self.host(node).group.send_commits(self.cluster.now))

    def do_transfer(self, node: str, to: str) -> None:
        group = self.host(node).group
        self.host(node).apply(group.transfer_leadership(self.host(to).self_id, self.cluster.now))

    def do_timers(self) -> None:
        """Two seconds pass."""
        self.cluster.now += 2.0
        for host in self.cluster.hosts.values():
            host.apply(host.group.tick(self.cluster.now))

    def do_link_lost(self, node: str, to: str) -> None:
        self.host(node).group.peer_lost(int(to))

    def do_link(self, node: str, to: str) -> None:
        self.host(node).apply(self.host(node).group.peer_reachable(int(to), self.cluster.now))

    def do_log_start(self, node: str, offset: str) -> None:
        self.host(node).raise_log_start(int(offset))

    def do_install(self, node: str) -> None:
        self.host(node).finish_install()

    def do_status(self) -> None:
        for host in self.cluster.hosts.values():
            group = host.group
            terms = " ".join(str(entry.term) + ("*" if entry.row else "") for entry in host.log.entries)
            self.lines.append(
                f"{_name(host.self_id)} {group.role.name} term {group.term} durable {group.persisted_end} "
                f"commit {group.commit_end} log [{terms}] {_members(group.configuration)}"
            )


def _name(one: ReplicaId) -> str:
    return f"{one.node_id}" if one.incarnation == 0 else f"{one.node_id}.{one.incarnation}"


def _members(configuration: Configuration) -> str:
    voters = ",".join(map(_name, configuration.voters))
    learners = ",".join(map(_name, configuration.learners))
    return f"({voters})" + (f"+({learners})" if learners else "")


def _row(row: Row) -> str:
    configuration = "" if row.configuration is None else " " + _members(row.configuration)
    return f"row {row.index} of term {row.term}: {row.kind.name}{configuration}"


def _describe(packet: Packet) -> str:
    match packet.body:
        case Append(term, start, _, prev_term, to_index, rows, _, commit_end, _):
            ends = f" ending with {_row(rows[0])}" if rows else ""
            kind = f"append [{start}, {to_index})" if to_index > start else f"empty at {start}"
            return f"term {term} {kind} after term {prev_term}{ends}, commit {commit_end}"
        case AppendReply(term, match_end, _):
            return f"term {term} holds {match_end}"
        case AppendRejection(term, start_index, hint_index, hint_term, _):
            return f"term {term} rejects {start_index}: try {hint_index}, term {hint_term}"
        case VoteRequest(term, last_term, end_index, pre_vote, transfer):
            kind = ("pre-vote" if pre_vote else "vote") + (" in a transfer" if transfer else "")
            return f"asks for {kind} in term {term}, last term {last_term}, end {end_index}"
        case VoteReply(term, granted, pre_vote, _):
            return f"{'grants' if granted else 'refuses'} {'pre-vote' if pre_vote else 'vote'}, term {term}"
        case TimeoutNow(term):
            return f"transfers leadership, term {term}"
        case SendSnapshot(term, snapshot):
            return f"term {term} snapshot at offset {snapshot.log_start}, index {snapshot.end_index}"
        case InstallSnapshotReply(term, match_end, log_start):
            return f"term {term} holds {match_end}, begins at offset {log_start}"
    raise AssertionError(packet)
