"""One pass of compaction, or one digest of a log, told over two pipes: what the process of a cleaner does."""

from __future__ import annotations

import os
import pickle
from time import monotonic, sleep  # noqa: TID251 (there is no loop here)
from typing import BinaryIO

from broker.compaction.child_messages import GO_ON, LENGTH, Failure, Order
from storage.batch_scan import BytesMoved, UncleanableError
from storage.compaction.key_map import KeyMapTooSmallError
from storage.disk import DiskFullError, MissingPathError
from storage.errors import CorruptLogError
from storage.file_disk import FileDisk
from storage.log_cleaning import CleaningEvent, CleaningTask, clean
from storage.log_digest import DigestReady, digest_log


def work(node_pid: int, told: BinaryIO, told_to: BinaryIO) -> None:
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
