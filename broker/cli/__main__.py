"""The entry point of `python -m broker.cli`, which the installed command `varve` runs."""

from __future__ import annotations

import errno
import os
import sys

from broker.cli.interrupts import end_at_once

#: What writing to a full disk, a closed pipe or a terminal that is gone may end with.
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    end_at_once()
    from broker.cli.root import varve

    try:
        varve(prog_name="varve")
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        print(f"varve: standard output cannot be written: {error.strerror}", file=sys.stderr)
        # Python would try once more at its end, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
