"""The process that `broker.compaction.child_cleaner` starts: one pass of compaction, or one digest of a log, told over
stdin and stdout."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from ctypes import c_int
from time import monotonic, sleep  # noqa: TID251 (there is no loop here)
from typing import BinaryIO

from broker.compaction.child_cleaner import GO_ON, LENGTH, Failure, Order
from storage import libc
from storage.batch_scan import BytesMoved, UncleanableError
from storage.compaction.key_map import KeyMapTooSmallError
from storage.disk import DiskFullError, MissingPathError
from storage.errors import CorruptLogError
from storage.file_disk import FileDisk
from storage.log_cleaning import CleaningEvent, CleaningTask, clean
from storage.log_digest import DigestReady, digest_log

#: Linux (sys/prctl.h): the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1
#: Clients are served first.
_NICE = 10


def main() -> int:
    node_pid = int(sys.argv[1])
    prctl = libc.function("prctl", c_int, c_int)
    if prctl is not None:
        # The next life of the node clears the folder in which this process builds.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != node_pid:
        return 1  # the node died before that, and the order may be in the pipe all the same
    os.nice(_NICE)
    told, told_to = sys.stdin.buffer, sys.stdout.buffer
    (length,) = LENGTH.unpack(told.read(LENGTH.size))
    order: Order = pickle.loads(told.read(length))
    try:
        _run(order, node_pid, told, told_to)
        _say(told_to, None)
    except CorruptLogError as error:
        _say(told_to, Failure("corrupt", str(error)))
    except DiskFullError as error:
        _say(told_to, Failure("full", str(error)))
    except MissingPathError as error:
        _say(told_to, Failure("missing", str(error)))
    except (UncleanableError, KeyMapTooSmallError) as error:
        _say(told_to, Failure("uncleanable", str(error)))
    return 0


def _run(order: Order, node_pid: int, told: BinaryIO, told_to: BinaryIO) -> None:
    disk = FileDisk(order.root, lambda call: call())
    started_s, moved_bytes = monotonic(), 0
    task = order.task
    events = clean(disk, task) if isinstance(task, CleaningTask) else digest_log(disk, task)
    for event in events:
        if os.getppid() != node_pid:
            return  # where there is no such signal
        if isinstance(event, BytesMoved):
            moved_bytes += event.byte_count
            ahead_s = moved_bytes / order.max_bytes_per_second - (monotonic() - started_s)
            if ahead_s > 0:
                sleep(ahead_s)
        else:
            _say(told_to, event)
            if told.read(len(GO_ON)) != GO_ON:
                return  # the node has given it up


def _say(told_to: BinaryIO, said: CleaningEvent | DigestReady | Failure | None) -> None:
    data = pickle.dumps(said)
    told_to.write(LENGTH.pack(len(data)) + data)
    told_to.flush()


if __name__ == "__main__":
    sys.exit(main())
