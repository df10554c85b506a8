"""The production process: one node on a real disk, a real network and a real clock."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_int
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from broker.compaction.child_cleaner import ChildCleaner
from broker.config.descriptors import MIN_LIMIT, connections_of, limit_for, replicas_of
from broker.config.node_config import NodeConfig
from broker.garbage import DeadReplicas, search_rarely
from broker.log_file import LogFile
from broker.log_limit import LimitedLines
from broker.log_lines import write_log_lines
from broker.membership.identity import RestartError, StartError
from broker.network.tcp_network import TcpNetwork
from broker.node import Node
from broker.security.cluster_secret import ClusterSecret
from broker.security.proofs import Authenticator
from broker.start_hints import explain
from broker.system_clock import SystemClock
from storage import libc
from storage.disk import DirectoryLockedError, DiskError
from storage.file_disk import FileDisk

log = structlog.get_logger()

#: glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 64 << 20
#: macOS calls the limit unlimited, and allows less than that.
_ALLOWED_BY_MACOS = (65_536, 10_240)
#: What is recommended: enough for a thousand replicas and two thousand clients.
GOOD_LIMIT = 4096
#: How often it is looked for lines that were counted and are to be told.
LINE_TICK_S = 1.0


def keep_buffers_warm() -> None:
    """Have malloc keep large freed buffers instead of giving the pages back.

    A fresh 1 MB buffer costs more in page faults than everything we do with it (performance.md section 1).
    Only glibc has the call; elsewhere nothing is lost but speed.
    """
    mallopt = libc.function("mallopt", c_int, c_int)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)


def allow_many_files() -> int:
    """Raise the soft limit on descriptors to the hard one. Returns the limit.

    The soft one is 1024 in many places, for the sake of programs that use select(2), which we do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, *_ALLOWED_BY_MACOS):
        if limit != resource.RLIM_INFINITY and limit > soft:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                return limit
    return soft


def default_gateway(table: Path = Path("/proc/net/route")) -> str:
    """The address of the default gateway, as Linux tells it; "" if there is none."""
    try:
        routes = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return ""
    for _, destination, gateway, *_ in routes:
        if int(destination, 16) == 0 and int(gateway, 16):
            return socket.inet_ntoa(int(gateway, 16).to_bytes(4, sys.byteorder))
    return ""


def check_open_files(config: NodeConfig) -> None:
    """Log what the limit on open files allows, and what a node needs at least. Raises StartError if it cannot work with
    so few."""
    limit = config.descriptor_limit
    needed = limit_for(config.offsets_topic_num_partitions + config.transaction_topic_num_partitions)
    help_text = (
        f"raise the limit on open files (ulimit -n {max(needed, GOOD_LIMIT)}; LimitNOFILE=, --ulimit nofile=)"
    )
    if limit < MIN_LIMIT:
        raise StartError(
            f"the process may open {limit} files, and a node needs {MIN_LIMIT} to start, {needed} to serve groups and "
            f"transactions: {help_text}"
        )
    allowed = {"limit": limit, "replicas": replicas_of(limit), "connections": connections_of(limit)}
    if limit < needed:
        log.warning("few open files", **allowed, needed=needed, reason="the internal topics", help=help_text)
    else:
        log.info("open files", **allowed)


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    """uvloop where it is wanted and installed, else asyncio's own."""
    if kind == "uvloop":
        try:
            import uvloop
        except ImportError:
            log.warning("uvloop is not installed, using asyncio's own loop")
        else:
            return uvloop.new_event_loop()
    return asyncio.new_event_loop()


async def _serve(config: NodeConfig, secret: ClusterSecret, limited: LimitedLines) -> int:
    loop = asyncio.get_running_loop()

    def write_counts() -> None:
        limited.write_due()
        loop.call_later(LINE_TICK_S, write_counts)

    write_counts()
    stopping = asyncio.Event()

    def fail(error: BaseException) -> None:
        """A disk that failed or a broken invariant: stop at once, acknowledge nothing more. Or be the next start, in
        this process: no supervisor is needed, and whatever is open closes as if it had ended."""
        if isinstance(error, RestartError):
            log.critical("node starts anew", reason=str(error))
            cleaner.kill()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        try:
            log.critical("node stops", error=str(error), kind=type(error).__name__)
        finally:  # a line may fail as well, if the process may open no more files
            os._exit(70)

    def post(call: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(call)

    def watch(fd: int, call: Callable[[], None] | None) -> None:
        if call is None:
            loop.remove_reader(fd)
        else:
            loop.add_reader(fd, call)

    def unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: state may be half changed, so going on could break a promise."""
        error = context.get("exception")
        if isinstance(error, Exception):
            try:
                if not isinstance(error, DiskError):  # those are foreseen, and `fail` names them
                    log.critical("unexpected error", what=context.get("message"), exc_info=error)
            finally:
                fail(error)
        log.error("event loop", what=context.get("message"))

    loop.set_exception_handler(unexpected)
    disk = FileDisk(config.log_dir, post, watch)
    cleaner = ChildCleaner(disk.root)
    rng = random.Random(random.SystemRandom().getrandbits(64))
    authenticator = Authenticator(secret, os.urandom)
    node = Node(config, disk, TcpNetwork(), SystemClock(), rng, authenticator, fail, cleaner)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    starting = loop.create_task(node.start())
    stop_wanted = loop.create_task(stopping.wait())
    await asyncio.wait((starting, stop_wanted), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        node.replica_events.closed.append(DeadReplicas(loop).closed)
        log.info(
            "started", node_id=config.node_id, listeners=[f"{x.host}:{x.port}" for x in config.listeners]
        )
        await stop_wanted
    else:
        starting.cancel()
    log.info("stopping", node_id=config.node_id)
    await node.stop()
    return 0


def run(config: NodeConfig, secret: ClusterSecret, log_file: LogFile | None = None) -> int:
    """Run a node until SIGTERM or SIGINT. Its log goes to `log_file`, or to standard output. Returns the exit code."""
    limited = write_log_lines(log_file)
    if config.uncoordinated_compaction:
        log.critical(
            "COMPACTION IS NOT COORDINATED: replicas will differ for ever, deleted keys will come back, aborted "
            "records will be read. This is for demonstrations",
            setting="varve.unsafe.uncoordinated.compaction",
        )
    keep_buffers_warm()
    # The flusher thread needs the interpreter back soon after its system call (performance.md section 6).
    sys.setswitchinterval(0.0005)
    # Start-up objects never die: keep the collector from walking them.
    gc.freeze()
    search_rarely()
    try:
        config = replace(config, descriptor_limit=allow_many_files(), gateway=default_gateway())
        check_open_files(config)
        # A runner cancels what a failed start leaves under way.
        with asyncio.Runner(loop_factory=partial(new_loop, config.loop)) as runner:
            return runner.run(_serve(config, secret, limited))
    except DirectoryLockedError:
        print(f"varve: another process uses the data directory {config.log_dir}", file=sys.stderr)
    except StartError as error:
        print(f"varve: {error}", file=sys.stderr)
    except DiskError as error:
        print(f"varve: {explain(config.log_dir, error)}", file=sys.stderr)
    finally:
        limited.write_due(is_end=True)
    return 1
