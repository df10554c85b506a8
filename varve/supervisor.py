"""The process that runs the nodes (`broker.cli.attached`), as its owner sees it: a request, then its answer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from typing import Any

from varve.errors import ClusterError
from varve.packages import isolated_command

#: Variables that nodes would take for settings. Those of a program that is tested are not meant for them.
_SETTINGS = ("KAFKA_", "VARVE_", "CLUSTER_ID")
#: The supervisor has SIGKILL for nodes that hang, and is done long before.
_END_S = 60.0


class Supervisor:
    """Ends with this process, however it ends: the pipe to it is closed then. Threads take turns.

    All methods raise ClusterError.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._last_id = 0
        self._owner_pid = os.getpid()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
        self._process = subprocess.Popen(
            isolated_command("broker.cli.attached", str(self._owner_pid)),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C in the terminal is for this process, which then stops the nodes in order.
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stderr = self._process.stderr

    @property
    def is_ours(self) -> bool:
        """False in a process that was forked from the owner: the cluster is not its to stop."""
        return os.getpid() == self._owner_pid

    def ask(self, do: str, **arguments: object) -> Any:
        if not self.is_ours:
            raise ClusterError(
                f"the cluster belongs to process {self._owner_pid}, from which this one was forked"
            )
        with self._turn:
            # An answer that nobody waited for, because of Ctrl-C, may come first. It has another number.
            self._last_id += 1
            number = self._last_id
            answer = self._exchange({"id": number, "do": do, **arguments})
        if "error" in answer:
            raise ClusterError(answer["error"])
        return answer["value"]

    def end(self) -> None:
        """The nodes are gone when it returns."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._process.wait(_END_S)
        self._stdout.close()
        self._stderr.close()

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._stdin.write(json.dumps(request).encode() + b"\n")
            self._stdin.flush()
            while line := self._stdout.readline():
                answer: dict[str, Any] = json.loads(line)
                if answer["id"] == request["id"]:
                    return answer
        except BrokenPipeError:
            pass
        said = self._stderr.read().decode(errors="replace").strip()
        raise ClusterError(f"the supervisor of the nodes has ended by itself: {said or 'it said nothing'}")
