"""`python -m tests.hostile.decoders_atheris RUNS [SEED]`: the decoders with bytes that atheris chooses, guided by which
code they reach. Ends with an error at the first defect; the bytes are in the file that libFuzzer names."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["protocol", "broker.groups.classic_subscription"]):
    from tests.hostile.decoders import all_checks, check

#: The process has to stay below; an idle one has some 150 MB.
_MAX_MEMORY_MB = 512
_MAX_INPUT_BYTES = 4096


def main() -> None:
    runs, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    checks = all_checks(atheris.instrument_func)
    options = [
        f"-runs={runs}",
        f"-seed={seed}",
        f"-rss_limit_mb={_MAX_MEMORY_MB}",
        f"-max_len={_MAX_INPUT_BYTES}",
    ]
    atheris.Setup([sys.argv[0], *options], lambda data: check(checks, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
