"""`python -m tests.history FILE...`: judge a history."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.history.checker import check
from tests.history.operations import HistoryError, read_operations
from tests.history.report import as_text, report

EXIT_VIOLATED = 1
EXIT_NOT_JUDGED = 2
"""argparse ends with it, too, where the arguments are wrong."""


def main() -> None:
    parser = argparse.ArgumentParser(
        "check-history",
        description="Say whether a correct Kafka cluster can have given its clients what these JSON lines tell.",
        epilog="The format is described in tests/history/README.md. "
        "Exit code: 0 no violation; 1 violations; 2 not a history, or one that proves nothing.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: %(default)s")
    options = parser.parse_args()
    try:
        verdict = check(read_operations(options.files))
        document = report(verdict, options.files)
    except HistoryError as error:
        print(f"check-history: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_JUDGED)
    print(json.dumps(document, indent=2) if options.format == "json" else as_text(document))
    if not verdict.is_valid:
        sys.exit(EXIT_VIOLATED)


if __name__ == "__main__":
    main()
