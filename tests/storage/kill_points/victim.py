"""The process that is killed: one pass over the prepared log, or the start of a node after it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from protocol.records.batch import Compression
from protocol.records.builder import NewRecord, build_batch
from storage.file_disk import FileDisk
from storage.producer_snapshot import load_producers
from tests.storage.kill_points.journaled_log import (
    data_directory,
    load_task,
    open_journaled,
    run_recorded_pass,
)

#: Looked up by the process, so that a trace of its system calls shows where its work begins and ends.
BEGIN_MARK = "/kill-points-begin"
END_MARK = "/kill-points-end"


def main(work: str, folder: Path) -> None:
    for codec in Compression:
        # Imports its library, or that would be a part of the pass.
        build_batch([NewRecord(b"", b"", 0)], base_offset=0, compression=codec)
    disk = FileDisk(str(data_directory(folder)), lambda call: call())
    if work == "pass":
        task = load_task(folder)
        journal, log = open_journaled(disk)
        os.access(BEGIN_MARK, os.F_OK)
        run_recorded_pass(log, journal, task)
    else:
        os.access(BEGIN_MARK, os.F_OK)
        journal, log = open_journaled(disk)
        load_producers(log)
    os.access(END_MARK, os.F_OK)
    # No clean shutdown: what is not durable now stays so.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
